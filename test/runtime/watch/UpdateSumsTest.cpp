#include "runtime/watch/UpdateSums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace lmc {
namespace {

// Elements that are trained with AdamW, in the precision of T, on drawn gradients.
template <typename T> struct Trained {
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.95;
  std::vector<T> weights, moment1, moment2;
  AdamWStep step;    // the latest one
  UpdateSums actual; // what the latest step has done, from the weights before and after it

  Trained(size_t count, double weightDecay, double lr, uint32_t seed)
      : weights(count), moment1(count), moment2(count), generator(seed) {
    step.lr = lr;
    step.eps = 1e-8;
    step.weightDecay = weightDecay;
    for (T &weight : weights)
      weight = static_cast<T>(0.02 * normal(generator));
  }

  void train(int steps) {
    while (steps-- > 0)
      trainOnce();
  }

  void trainOnce() {
    ++step.number;
    step.correction1 = 1 - std::pow(kBeta1, double(step.number));
    step.correction2 = 1 - std::pow(kBeta2, double(step.number));
    actual = {};
    for (size_t i = 0; i < weights.size(); ++i) {
      // Scales of gradients differ by powers of ten.
      const T gradient = static_cast<T>(normal(generator) * std::pow(10, -double(i % 6)));
      moment1[i] += T(1 - kBeta1) * (gradient - moment1[i]);
      moment2[i] = T(kBeta2) * moment2[i] + T(1 - kBeta2) * gradient * gradient;
      const T before = weights[i];
      const T root = std::sqrt(moment2[i]) / std::sqrt(T(step.correction2)) + T(step.eps);
      weights[i] = before * (1 - T(step.lr) * T(step.weightDecay)) -
                   T(step.lr) / T(step.correction1) * (moment1[i] / root);
      actual.update += std::pow(double(weights[i]) - double(before), 2);
      actual.before += std::pow(double(before), 2);
      actual.weights += std::pow(double(weights[i]), 2);
      actual.moment1 += std::pow(double(moment1[i]), 2);
    }
  }

  UpdateSums computed() const {
    return updateSums(step, step.weightDecay != 0, weights.data(), moment1.data(), moment2.data(),
                      weights.size());
  }

  std::mt19937 generator;
  std::normal_distribution<double> normal;
};

void expectEqual(const UpdateSums &ours, const UpdateSums &theirs, double bound) {
  EXPECT_NEAR(ours.update / theirs.update, 1, bound);
  EXPECT_NEAR(ours.before / theirs.before, 1, bound);
  EXPECT_NEAR(ours.weights / theirs.weights, 1, 1e-12);
  EXPECT_NEAR(ours.moment1 / theirs.moment1, 1, std::min(bound, 1e-6));
}

template <typename T> void expectStepsAreFound(double bound) {
  uint32_t seed = 0;
  for (double decay : {0.0, 0.1, 5.0})
    for (double lr : {1e-3, 0.05})
      for (size_t count : {1, 7, 64, 1000}) {
        Trained<T> tensor(count, decay, lr, ++seed);
        for (int steps : {1, 1, 20}) {
          SCOPED_TRACE(::testing::Message() << "decay " << decay << ", lr " << lr << ", " << count
                                            << " elements, step " << tensor.step.number + steps);
          tensor.train(steps);
          expectEqual(tensor.computed(), tensor.actual, bound);
        }
      }
}

TEST(UpdateSums, AreThoseOfTheStepInF64) { expectStepsAreFound<double>(1e-11); }
TEST(UpdateSums, AreThoseOfTheStepInF32) { expectStepsAreFound<float>(1e-3); }

TEST(UpdateSums, DecayCountsOnlyWhereItApplies) {
  Trained<double> tensor(100, 0.1, 1e-2, 1);
  tensor.train(3);
  const UpdateSums without = updateSums(tensor.step, false, tensor.weights.data(),
                                        tensor.moment1.data(), tensor.moment2.data(), 100);
  AdamWStep other = tensor.step;
  other.weightDecay = 0;
  const UpdateSums none = updateSums(other, true, tensor.weights.data(), tensor.moment1.data(),
                                     tensor.moment2.data(), 100);
  EXPECT_EQ(without.update, none.update);
  EXPECT_NE(without.update, tensor.computed().update);
}

TEST(UpdateSums, AreZeroOrNotFiniteWhereTheUpdateIs) {
  AdamWStep step;
  step.lr = 1e-3;
  step.eps = 1e-8;
  std::vector<float> weights(20, 0.5F), zeros(20);
  UpdateSums sums = updateSums(step, true, weights.data(), zeros.data(), zeros.data(), 20);
  EXPECT_EQ(sums.update, 0);
  EXPECT_EQ(sums.moment1, 0);
  EXPECT_EQ(sums.before, 5);
  weights[13] = std::nanf("");
  sums = updateSums(step, true, weights.data(), zeros.data(), zeros.data(), 20);
  EXPECT_TRUE(std::isnan(sums.before));
}

// The codes, as passes/fusion/MomentCode.h has them.
int8_t code1(float moment, float scale) {
  const double root = std::pow(std::abs(double(moment)) / double(scale), 0.25);
  const double code = std::floor(127 * root + 0.5);
  return static_cast<int8_t>(moment < 0 ? -code : code);
}
uint8_t code2(float moment, float scale) {
  const double root = std::pow(double(moment) / double(scale), 0.125);
  const double code = std::floor(255 * root + 0.5);
  return static_cast<uint8_t>(moment > 0 ? std::max(code, 1.0) : 0);
}

struct Coded {
  std::vector<int8_t> codes1;
  std::vector<uint8_t> codes2;
  std::vector<float> scales1, scales2;

  explicit Coded(const Trained<float> &tensor) {
    for (size_t i = 0; i < tensor.weights.size(); ++i) {
      if (i % 256 == 0) {
        const size_t end = std::min(i + 256, tensor.weights.size());
        scales1.push_back(0);
        scales2.push_back(0);
        for (size_t j = i; j < end; ++j) {
          scales1.back() = std::max(scales1.back(), std::abs(tensor.moment1[j]));
          scales2.back() = std::max(scales2.back(), tensor.moment2[j]);
        }
      }
      codes1.push_back(code1(tensor.moment1[i], scales1.back()));
      codes2.push_back(code2(tensor.moment2[i], scales2.back()));
    }
  }
  CodedMoments moments() const {
    return {codes1.data(), codes2.data(), scales1.data(), scales2.data()};
  }
};

TEST(UpdateSums, DecodeMomentsOf8Bits) {
  // Seven blocks whose scales differ, and all codes.
  Trained<float> tensor(7 * 256, 0.1, 1e-3, 5);
  tensor.train(4);
  for (size_t i = 0; i < tensor.weights.size(); ++i) {
    const float scale = std::pow(10.0F, -float(i / 256));
    tensor.moment1[i] *= scale;
    tensor.moment2[i] *= scale * scale;
  }
  Coded coded(tensor);
  for (size_t i = 0; i < 256; ++i) {
    coded.codes1[i] = static_cast<int8_t>(std::max(int(i) - 128, -127));
    coded.codes2[i] = static_cast<uint8_t>(i);
  }
  std::vector<double> weights, moment1, moment2;
  for (size_t i = 0; i < tensor.weights.size(); ++i) {
    const double c1 = coded.codes1[i] / 127.0, c2 = coded.codes2[i] / 255.0;
    weights.push_back(double(tensor.weights[i]));
    moment1.push_back(double(coded.scales1[i / 256]) * (c1 < 0 ? -1 : 1) * std::pow(c1, 4));
    moment2.push_back(double(coded.scales2[i / 256]) * std::pow(c2, 8));
  }
  const UpdateSums expected =
      updateSums(tensor.step, true, weights.data(), moment1.data(), moment2.data(), weights.size());
  expectEqual(
      updateSums(tensor.step, true, tensor.weights.data(), coded.moments(), tensor.weights.size()),
      {expected.update, expected.before, expected.weights, expected.moment1}, 1e-5);
}

TEST(UpdateSums, OfRoundedMomentsAreNearTheStep) {
  Trained<float> tensor(4096, 0.1, 1e-3, 6);
  for (int i = 0; i < 5; ++i) {
    tensor.train(3);
    const Coded coded(tensor);
    const UpdateSums sums =
        updateSums(tensor.step, true, tensor.weights.data(), coded.moments(), 4096);
    EXPECT_NEAR(sums.update / tensor.actual.update, 1, 0.03);
    EXPECT_NEAR(sums.before / tensor.actual.before, 1, 1e-3);
  }
}

} // namespace
} // namespace lmc
