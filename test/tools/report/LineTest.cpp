#include "tools/report/Line.h"
#include "tools/report/MedianSketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace lmc {
namespace {

RunPosition position(double step) { return {step, step * 100, step / 2}; }

TEST(Line, HasAllValuesOfAShortRun) {
  Line line;
  for (int step = 1; step <= int(Line::kMaxBuckets); ++step)
    line.add(position(step), std::cos(step));
  const std::vector<LinePoint> points = line.points();
  ASSERT_EQ(points.size(), Line::kMaxBuckets);
  for (size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].at.step, double(i + 1));
    EXPECT_EQ(points[i].at.tokens, double(i + 1) * 100);
    EXPECT_EQ(points[i].at.seconds, double(i + 1) / 2);
    EXPECT_EQ(points[i].value, std::cos(double(i + 1)));
  }
}

TEST(Line, KeepsSpikesOfSingleStepsAndBoundsThePointsOfAMillionSteps) {
  Line line;
  std::minstd_rand draw(7);
  const std::vector<int> high = {1234, 500'001, 999'998}, low = {77'777, 640'000};
  for (int step = 1; step <= 1'000'000; ++step) {
    double value = double(draw() % 1000) / 1000;
    if (std::count(high.begin(), high.end(), step))
      value = 10 + step;
    if (std::count(low.begin(), low.end(), step))
      value = -step;
    line.add(position(step), value);
  }
  const std::vector<LinePoint> points = line.points();
  EXPECT_LE(points.size(), Line::kMaxPoints);
  EXPECT_GE(points.size(), Line::kMaxBuckets / 2);
  EXPECT_EQ(points.front().at.step, 1);
  EXPECT_EQ(points.back().at.step, 1'000'000);
  std::vector<int> foundHigh, foundLow;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i > 0) {
      EXPECT_LT(points[i - 1].at.step, points[i].at.step);
    }
    if (points[i].value > 1)
      foundHigh.push_back(int(points[i].value) - 10);
    if (points[i].value < 0)
      foundLow.push_back(-int(points[i].value));
  }
  EXPECT_EQ(foundHigh, high);
  EXPECT_EQ(foundLow, low);
}

TEST(Line, MeansOfBucketsAddUpToAllValues) {
  Line line;
  double sum = 0;
  constexpr int kSteps = 5000;
  for (int step = 1; step <= kSteps; ++step) {
    line.add(position(step), step % 17);
    sum += step % 17;
  }
  double total = 0, before = 0;
  for (const LinePoint &mean : line.means()) {
    total += mean.value * (mean.at.step - before);
    EXPECT_TRUE(mean.at.step - before == double(line.bucketSize()) || mean.at.step == kSteps);
    before = mean.at.step;
  }
  EXPECT_EQ(before, kSteps);
  EXPECT_NEAR(total, sum, 1e-6);
}

TEST(Line, WithoutValuesHasNoPoints) {
  EXPECT_TRUE(Line().points().empty());
  EXPECT_TRUE(Line().means().empty());
}

TEST(MedianSketch, IsWithinATenthOfAPercent) {
  std::minstd_rand draw(3);
  for (size_t count : {1, 2, 3, 1000, 4001}) {
    MedianSketch sketch;
    std::vector<double> values;
    for (size_t i = 0; i < count; ++i) {
      values.push_back(std::exp(double(draw() % 20000) / 1000 - 10));
      sketch.add(values.back());
    }
    sketch.add(0);
    sketch.add(std::nan(""));
    std::sort(values.begin(), values.end());
    const double median = values[(count - 1) / 2];
    ASSERT_TRUE(sketch.median());
    EXPECT_NEAR(*sketch.median(), median, 0.001 * median) << count;
  }
  EXPECT_FALSE(MedianSketch().median());
}

} // namespace
} // namespace lmc
