// A spec with known numbers makes times, and the fit finds the numbers again.
#include "compiler/cost/Refit.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

using namespace lmc;
using namespace lmc::cost;

namespace {

// A target that counts the clocks of its attention kernels, of which it has two.
class ClockModel : public CostModel {
public:
  using CostModel::CostModel;
  std::vector<Estimate> attentionKernels(const AttentionWork &work) const override {
    const double clocks = double(work.batch * work.heads) * double(work.seq * work.seq) * 0.5;
    return {roofline(clocks / spec.clock, Bound::MatrixUnits, clocks, 1000, spec),
            roofline(2 * clocks / spec.clock, Bound::MatrixUnits, clocks, 1000, spec)};
  }
};

std::unique_ptr<CostModel> modelOf(DeviceSpec spec) {
  if (spec.clock > 0)
    return std::make_unique<ClockModel>(std::move(spec));
  return std::make_unique<CostModel>(std::move(spec));
}

// Work of each kind: limited by each rate of the spec, and in several sizes.
std::vector<Work> worksFor(const DeviceSpec &spec) {
  std::vector<Work> works;
  for (double scale : {1.0, 2.0, 3.5}) {
    const double cached = double(spec.cacheBytes) * scale / 4;
    if (cached > 0)
      works.push_back(KernelWork{cached / 2, cached / 2, cached / 64});
    const double streamed = 256e6 * scale;
    works.push_back(KernelWork{streamed, streamed / 2, streamed / 8});
    works.push_back(KernelWork{streamed, streamed, 100 * streamed}); // many operations a byte
    works.push_back(KernelWork{100 * scale, 100, 10}); // little more than a launch
    for (DataType type : {DataType::BF16, DataType::F32})
      works.push_back(GemmWork{int64_t(2048 * scale), 4096, 4096, type, type, false, 0});
    AttentionWork attention{4, int64_t(1024 * scale), 16, 8, 64};
    works.push_back(attention);
    attention.backward = true;
    works.push_back(attention);
  }
  works.push_back(ScatterWork{8192, 2048, 32000, 2, 4, true});
  return works;
}

std::vector<MeasuredWork> timesOf(const DeviceSpec &truth) {
  const auto model = modelOf(truth);
  std::vector<MeasuredWork> times;
  for (const Work &work : worksFor(truth))
    times.push_back({work, sumOf(model->kernels(work)).seconds, 3});
  return times;
}

// The numbers that a fit may change.
std::map<std::string, double *> numbersOf(DeviceSpec &spec) {
  std::map<std::string, double *> numbers = {{"bandwidth", &spec.memoryBandwidth},
                                             {"vector", &spec.vectorFlops},
                                             {"launch", &spec.launchSeconds},
                                             {"bf16", &spec.gemm[size_t(DataType::BF16)].sustained},
                                             {"f32", &spec.gemm[size_t(DataType::F32)].sustained}};
  if (spec.cacheBytes > 0)
    numbers["cache"] = &spec.cacheBandwidth;
  if (spec.clock > 0) {
    numbers["clock"] = &spec.clock;
    return numbers;
  }
  AttentionModel &attention = spec.attention[attentionModelOf(AttentionWork{1, 1, 1, 1, 64}, spec)];
  numbers["forward"] = &attention.forward;
  numbers["backward"] = &attention.backward;
  return numbers;
}

DeviceSpec builtIn(const char *name) {
  auto spec = loadDeviceSpec(name);
  EXPECT_TRUE(spec);
  return *spec;
}

} // namespace

// A rate has no bound from a command that does no work of its kind.
TEST(Refit, TakesKernelsWithoutFlopsAndWithoutBytes) {
  DeviceSpec truth = builtIn("h100-sxm");
  truth.cacheBytes = 0;
  const auto model = modelOf(truth);
  for (const KernelWork &work : {KernelWork{256e6, 256e6, 0}, KernelWork{0, 0, 1e12}}) {
    const Refit fitted =
        refit(truth, {{work, model->kernels(work).front().seconds, 1}}, modelOf);
    EXPECT_NEAR(fitted.spec.vectorFlops, truth.vectorFlops, 1e-3 * truth.vectorFlops);
    EXPECT_NEAR(fitted.spec.memoryBandwidth * fitted.spec.reachable,
                truth.memoryBandwidth * truth.reachable, 1e-3 * truth.memoryBandwidth);
  }
}

TEST(Refit, FindsTheNumbersThatMadeTheTimes) {
  for (const char *name : {"cpu", "h100-sxm"}) {
    const DeviceSpec truth = builtIn(name);
    const std::vector<MeasuredWork> times = timesOf(truth);
    // All wrong in the same way, and in different ways.
    for (const std::vector<double> &wrong :
         {std::vector<double>{0.5}, {2}, {0.6, 1.7}, {1.5, 0.8, 0.7}, {1}}) {
      DeviceSpec start = truth;
      size_t next = 0;
      for (auto &[key, number] : numbersOf(start))
        *number *= wrong[next++ % wrong.size()];
      Refit fitted = refit(start, times, modelOf);
      fitted.spec.memoryBandwidth *= fitted.spec.reachable;
      DeviceSpec expected = truth;
      expected.memoryBandwidth *= expected.reachable;
      const auto found = numbersOf(fitted.spec);
      for (const auto &[key, number] : numbersOf(expected))
        EXPECT_NEAR(*found.at(key), *number, 0.01 * *number)
            << name << ", " << key << ", start " << wrong[0];
    }
  }
}

TEST(Refit, KeepsTheDataSheetsBandwidthAndSaysWhatIsReached) {
  const DeviceSpec truth = builtIn("h100-sxm");
  DeviceSpec start = truth;
  start.reachable = 0.7;
  Refit slower = refit(start, timesOf(truth), modelOf);
  EXPECT_EQ(slower.spec.memoryBandwidth, truth.memoryBandwidth);
  EXPECT_NEAR(slower.spec.reachable, truth.reachable, 1e-3);
  start.memoryBandwidth = truth.memoryBandwidth / 2;
  Refit faster = refit(start, timesOf(truth), modelOf);
  EXPECT_NEAR(faster.spec.memoryBandwidth, truth.memoryBandwidth * truth.reachable,
              1e-3 * truth.memoryBandwidth);
  EXPECT_EQ(faster.spec.reachable, 1);
}

TEST(Refit, FollowsMostCommandsAndNotASingleOne) {
  const DeviceSpec truth = builtIn("h100-sxm");
  std::vector<MeasuredWork> times = timesOf(truth);
  for (MeasuredWork &each : times)
    if (const auto *gemm = std::get_if<GemmWork>(&each.work))
      if (gemm->input == DataType::BF16 && gemm->m == 2048)
        each.seconds *= 1000; // other work on the machine came between
  const Refit fitted = refit(truth, times, modelOf);
  EXPECT_NEAR(fitted.spec.gemm[size_t(DataType::BF16)].sustained,
              truth.gemm[size_t(DataType::BF16)].sustained,
              0.01 * truth.gemm[size_t(DataType::BF16)].sustained);
}

// A plan without a class of commands says nothing about it.
TEST(Refit, LeavesWhatWasNotMeasured) {
  const DeviceSpec truth = builtIn("cpu");
  DeviceSpec start = truth;
  start.gemm[size_t(DataType::F32)].sustained *= 2;
  const Work product = GemmWork{512, 512, 512, DataType::F32, DataType::F32, false, 0};
  const Refit fitted =
      refit(start, {{product, modelOf(truth)->kernels(product)[0].seconds, 1}}, modelOf);
  EXPECT_EQ(fitted.spec.vectorFlops, start.vectorFlops);
  EXPECT_EQ(fitted.spec.launchSeconds, start.launchSeconds);
  EXPECT_EQ(fitted.spec.memoryBandwidth * fitted.spec.reachable,
            start.memoryBandwidth * start.reachable);
  ASSERT_EQ(fitted.numbers.size(), 1u);
  EXPECT_EQ(fitted.numbers[0].key, "gemm.f32.sustained");
  EXPECT_EQ(fitted.numbers[0].commands, 1u);
  EXPECT_NEAR(fitted.numbers[0].after, truth.gemm[size_t(DataType::F32)].sustained,
              1e-3 * fitted.numbers[0].after);
}
