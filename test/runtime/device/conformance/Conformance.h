// What every device promises (runtime/device/Device.h). The suite runs on each device of
// Devices.cpp; a check that a device cannot do is skipped and says why.
#pragma once

#include "ground/plan/FloatConvert.h"
#include "runtime/device/Device.h"
#include "test/ground/plan/PlanBuilder.h"

#include <gtest/gtest.h>

#include <functional>

namespace lmc::test {

using plan::DType;

// A kernel for each kind of device: `c` is what a CPU's module exports, `cuda` the source of a
// kernel that is launched with `blocks` blocks of `threads` threads.
struct KernelText {
  const char *entry, *c, *cuda;
  uint32_t blocks, threads;
};

// A plan that a device must refuse to load.
struct BadPlan {
  std::function<void(PlanBuilder &)> build;
  const char *message; // a part of the error
};

struct TestDevice {
  const char *name;
  const char *target; // of the plans
  // Results must not depend on `variant`: the number of threads of a CPU, the order in which the
  // SIMT device runs the threads of a kernel.
  Result<std::unique_ptr<Device>> (*open)(const PlanFile &plan, int variant);
  // Adds a kernel to the plan and returns its index.
  uint32_t (*addKernel)(PlanBuilder &b, const KernelText &text);
  std::vector<BadPlan> (*badPlans)();
  const char *skipped; // why no check can run; null: they can
  const char *noSpeed; // why its peak FLOP/s mean nothing; null: they do
  bool ownKernels;     // attention and scatter_add need no kernels of the plan
};

inline void PrintTo(const TestDevice &device, std::ostream *to) { *to << device.name; }

// d = 2 x for 105 elements, ten at a time; what calls[i] holds grows by how many elements chunk i
// has.
inline const KernelText kDoubleRows = {"doubleRows", R"(
#include <stdint.h>
void doubleRows(void *const *args, int64_t begin, int64_t end) {
  const float *x = args[0];
  const int32_t *before = args[1];
  float *d = args[2];
  int32_t *calls = args[3];
  for (int64_t i = begin; i < end; ++i)
    d[i] = 2 * x[i];
  calls[begin / 10] = before[begin / 10] + (int32_t)(end - begin);
}
)",
                                       R"(
extern "C" __global__ void __launch_bounds__(32)
doubleRows(const float *x, const int *before, float *d, int *calls) {
  const int begin = blockIdx.x * 10, end = begin + 10 < 105 ? begin + 10 : 105;
  const int i = begin + threadIdx.x;
  if (i < end)
    storeOne(d + i, 2 * loadOne(x + i));
  if (threadIdx.x == 0)
    storeOne(calls + blockIdx.x, loadOne(before + blockIdx.x) + (end - begin));
}
)",
                                       11, 32};

class Conformance : public testing::TestWithParam<TestDevice> {
protected:
  void SetUp() override {
    if (GetParam().skipped)
      GTEST_SKIP() << GetParam().skipped;
    b.plan.target = GetParam().target;
  }

  // Opens the plan as it has been built, and a device for it.
  void open(int variant = 1) {
    device = nullptr;
    plan = nullptr;
    auto file = b.open();
    ASSERT_TRUE(file) << file.error().message;
    plan = std::move(*file);
    auto opened = GetParam().open(*plan, variant);
    ASSERT_TRUE(opened) << opened.error().message;
    device = std::move(*opened);
  }

  // Opens, loads, and records the plan's only function.
  void record(int variant = 1) {
    ASSERT_NO_FATAL_FAILURE(open(variant));
    auto loaded = device->load(*plan);
    ASSERT_TRUE(loaded) << loaded.error().message;
    auto recorded = device->record(0);
    ASSERT_TRUE(recorded) << recorded.error().message;
    executable = std::move(*recorded);
  }

  void run() {
    auto submitted = device->submit(*executable);
    ASSERT_TRUE(submitted) << submitted.error().message;
    auto done = device->synchronize();
    ASSERT_TRUE(done) << done.error().message;
  }

  template <typename T> void write(uint32_t slice, const std::vector<T> &values) {
    auto copied = device->copyIn(int(slice), values.data(), values.size() * sizeof(T));
    ASSERT_TRUE(copied) << copied.error().message;
  }

  template <typename T> std::vector<T> read(uint32_t slice) {
    std::vector<T> values((*plan)->slices()->Get(slice)->bytes() / sizeof(T));
    auto copied = device->copyOut(int(slice), values.data(), values.size() * sizeof(T));
    EXPECT_TRUE(copied) << copied.error().message;
    return values;
  }

  // Write and read floats of `dtype` as f64.
  void writeFloats(DType dtype, uint32_t slice, const std::vector<double> &values) {
    std::vector<char> bytes(values.size() * byteWidth(dtype));
    convertFloats(DType::F64, values.data(), dtype, bytes.data(), values.size());
    write(slice, bytes);
  }
  std::vector<double> readFloats(DType dtype, uint32_t slice) {
    const std::vector<char> bytes = read<char>(slice);
    std::vector<double> values(bytes.size() / byteWidth(dtype));
    convertFloats(dtype, bytes.data(), DType::F64, values.data(), values.size());
    return values;
  }

  // A launch of a kernel that does all or a part of a command; the first `inputs` of `args` are
  // only read.
  std::unique_ptr<plan::LaunchT> launchOf(const KernelText &text, std::vector<uint32_t> args,
                                          uint32_t inputs) {
    auto launch = std::make_unique<plan::LaunchT>();
    launch->kernel = GetParam().addKernel(b, text);
    launch->args = std::move(args);
    launch->inputs = inputs;
    launch->items = launch->chunk = 1;
    return launch;
  }

  // Adds a launch to those that do the last command.
  void addLaunch(const KernelText &text, std::vector<uint32_t> args, uint32_t inputs) {
    b.plan.functions[0]->commands.back()->launches.push_back(
        launchOf(text, std::move(args), inputs));
  }

  // Gives the last command a kernel of one thread, on a device that has none of its own: `text` has
  // the parameters and the body. The host driver tells kernels apart by their names: none may begin
  // with the name of another.
  void addLoops(const std::string &entry, const std::string &text, std::vector<uint32_t> args,
                uint32_t inputs) {
    if (GetParam().ownKernels)
      return;
    const size_t body = text.find('{');
    const std::string cuda = "extern \"C\" __global__ void __launch_bounds__(32) " + entry +
                             text.substr(0, body) + "{ if (threadIdx.x > 0) return;" +
                             text.substr(body + 1);
    addLaunch({entry.c_str(), "", cuda.c_str(), 1, 32}, std::move(args), inputs);
  }

  PlanBuilder b;
  std::unique_ptr<PlanFile> plan;
  std::unique_ptr<Device> device;
  std::unique_ptr<Executable> executable;
};

// The gradients of commands that a device computes by code of its own.
// test/simt/kernels/CommandsTest.cpp holds each command and its CUDA kernels to one reference, and
// test/parity/test_experts.py compares whole steps with those of the CPU.
class OwnKernels : public Conformance {};

} // namespace lmc::test
