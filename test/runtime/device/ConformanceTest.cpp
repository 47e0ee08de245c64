// What every device promises (runtime/device/Device.h), on the CPU here.
#include "test/runtime/plan/PlanBuilder.h"

#include "runtime/device/Device.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <unistd.h>

using namespace lmc;
using lmc::test::PlanBuilder;
using plan::DType;

// A shared object of the C source, as the compiler would put into a plan.
static std::vector<uint8_t> compileC(const std::string &source) {
  const std::string base = testing::TempDir() + "/lmc-kernel-" + std::to_string(getpid());
  std::ofstream(base + ".c") << source;
  const std::string command = "cc -O1 -shared -fPIC -o " + base + ".so " + base + ".c";
  if (std::system(command.c_str()) != 0)
    return {};
  std::ifstream file(base + ".so", std::ios::binary);
  std::vector<uint8_t> image{std::istreambuf_iterator<char>(file), {}};
  std::remove((base + ".c").c_str());
  std::remove((base + ".so").c_str());
  return image;
}

static void addModule(PlanBuilder &b, std::vector<uint8_t> image,
                      std::vector<std::string> features = {}) {
  auto module = std::make_unique<plan::ModuleT>();
  module->target = "cpu:test";
  module->features = std::move(features);
  module->image = std::move(image);
  b.plan.modules.push_back(std::move(module));
}

static uint32_t addKernel(PlanBuilder &b, const std::string &entry) {
  auto kernel = std::make_unique<plan::KernelT>();
  kernel->name = entry;
  kernel->entry = entry;
  b.plan.kernels.push_back(std::move(kernel));
  return uint32_t(b.plan.kernels.size() - 1);
}

static const char *const kDoubleRows = R"(
#include <stdint.h>
void doubleRows(void *const *args, int64_t begin, int64_t end) {
  const float *x = args[0];
  float *d = args[1];
  int32_t *calls = args[2];
  for (int64_t i = begin; i < end; ++i)
    d[i] = 2 * x[i];
  calls[begin / 10] += (int32_t)(end - begin);
}
)";

TEST(Device, RunsLaunchesInChunks) {
  PlanBuilder b;
  uint32_t x = b.slice(DType::F32, {105}), d = b.slice(DType::F32, {105});
  uint32_t calls = b.slice(DType::I32, {11});
  addModule(b, compileC(kDoubleRows), {});
  plan::LaunchT launch;
  launch.kernel = addKernel(b, "doubleRows");
  launch.args = {x, d, calls};
  launch.inputs = 1;
  launch.items = 105;
  launch.chunk = 10;
  b.command(launch);
  auto plan = b.open();
  ASSERT_TRUE(plan) << plan.error().message;
  for (int threads : {1, 2, 7}) {
    auto device = openDevice(**plan, threads);
    ASSERT_TRUE(device) << device.error().message;
    ASSERT_TRUE((*device)->load(**plan));
    auto executable = (*device)->record(0);
    ASSERT_TRUE(executable);
    std::vector<float> in(105), out(105);
    std::iota(in.begin(), in.end(), 1.0f);
    ASSERT_TRUE((*device)->copyIn(int(x), in.data(), 105 * 4));
    ASSERT_TRUE((*device)->submit(**executable));
    ASSERT_TRUE((*device)->submit(**executable));
    ASSERT_TRUE((*device)->synchronize());
    ASSERT_TRUE((*device)->copyOut(int(d), out.data(), 105 * 4));
    for (int i = 0; i < 105; ++i)
      EXPECT_EQ(out[size_t(i)], 2 * in[size_t(i)]);
    std::vector<int32_t> counts(11);
    ASSERT_TRUE((*device)->copyOut(int(calls), counts.data(), 44));
    for (int i = 0; i < 11; ++i)
      EXPECT_EQ(counts[size_t(i)], i == 10 ? 10 : 20) << "two runs of each chunk";
  }
}

TEST(Device, RefusesModulesThatItCannotRun) {
  struct Case {
    std::vector<uint8_t> image;
    std::vector<std::string> features;
    const char *entry, *message;
  };
  const Case cases[] = {
      {compileC(kDoubleRows), {"warp-drive"}, "doubleRows", "'warp-drive'"},
      {compileC(kDoubleRows), {}, "tripleRows", "no kernel 'tripleRows'"},
      {std::vector<uint8_t>(100, 7), {}, "doubleRows", "does not load"},
      {{}, {}, "doubleRows", "have no code"},
  };
  for (const Case &c : cases) {
    PlanBuilder b;
    addModule(b, c.image, c.features);
    addKernel(b, c.entry);
    auto plan = b.open();
    ASSERT_TRUE(plan) << plan.error().message;
    auto device = openDevice(**plan, 1);
    ASSERT_TRUE(device);
    auto loaded = (*device)->load(**plan);
    ASSERT_FALSE(loaded);
    EXPECT_NE(loaded.error().message.find(c.message), std::string::npos) << loaded.error().message;
  }
}

TEST(Device, SaysWhatDoesNotFit) {
  PlanBuilder b;
  b.plan.arenas[1]->bytes = 1ull << 50;
  auto plan = b.open();
  ASSERT_TRUE(plan) << plan.error().message;
  auto device = openDevice(**plan, 1);
  ASSERT_TRUE(device);
  auto loaded = (*device)->load(**plan);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, ExitCode::DoesNotFit);
  EXPECT_NE(loaded.error().message.find("workspace 1048576.00 GiB"), std::string::npos)
      << loaded.error().message;
}

TEST(Device, OpensOnlyWhatThisBuildHas) {
  PlanBuilder b;
  b.plan.target = "cuda:sm_90a";
  auto plan = b.open();
  ASSERT_TRUE(plan);
  auto device = openDevice(**plan, 1);
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message.find("no CUDA device"), std::string::npos);
}

TEST(Device, CopiesStayInsideTheirSlice) {
  PlanBuilder b;
  uint32_t x = b.slice(DType::F32, {4});
  b.slice(DType::F32, {4}, 1);
  auto plan = b.open();
  ASSERT_TRUE(plan);
  auto device = openDevice(**plan, 1);
  ASSERT_TRUE(device);
  char data[32] = {};
  EXPECT_FALSE((*device)->copyIn(int(x), data, 4)) << "nothing is loaded";
  ASSERT_TRUE((*device)->load(**plan));
  EXPECT_EQ((*device)->allocatedBytes(), 64u + 64u);
  EXPECT_TRUE((*device)->copyIn(int(x), data, 8, 8));
  EXPECT_FALSE((*device)->copyIn(int(x), data, 9, 8));
  EXPECT_FALSE((*device)->copyOut(int(x), data, 1, ~0ull));
  EXPECT_FALSE((*device)->copyOut(9, data, 1));
  EXPECT_FALSE((*device)->copyOut(-1, data, 1));
  EXPECT_FALSE((*device)->record(1));
  EXPECT_FALSE((*device)->record(-1));
}

TEST(Device, FillsCopiesAndMultiplies) {
  PlanBuilder b;
  uint32_t a = b.slice(DType::F32, {2, 3}), w = b.slice(DType::F32, {4, 3});
  uint32_t d = b.slice(DType::F32, {2, 4}), e = b.slice(DType::F32, {2, 4});
  uint32_t half = b.slice(DType::BF16, {5}), count = b.slice(DType::I32, {3});
  auto fill = [&](uint32_t slice, double value) {
    plan::FillT command;
    command.d = slice;
    command.value = value;
    b.command(command);
  };
  fill(a, 2);
  fill(w, 0.5);
  fill(d, 10);
  fill(half, 1.5);
  fill(count, -7);
  plan::GemmT gemm;
  gemm.a = a;
  gemm.b = w;
  gemm.d = d;
  gemm.c = int(d);
  gemm.m = 2;
  gemm.n = 4;
  gemm.k = 3;
  gemm.transpose_b = true;
  b.command(gemm);
  plan::CopyT copy;
  copy.x = d;
  copy.d = e;
  b.command(copy);
  auto plan = b.open();
  ASSERT_TRUE(plan) << plan.error().message;
  auto device = openDevice(**plan, 2);
  ASSERT_TRUE(device);
  ASSERT_TRUE((*device)->load(**plan));
  auto executable = (*device)->record(0);
  ASSERT_TRUE(executable) << executable.error().message;
  ASSERT_TRUE((*device)->submit(**executable));
  float result[8];
  ASSERT_TRUE((*device)->copyOut(int(e), result, sizeof(result)));
  for (float x : result)
    EXPECT_EQ(x, 13.0f); // 10 + 3 * 2 * 0.5
  uint16_t halves[5];
  ASSERT_TRUE((*device)->copyOut(int(half), halves, sizeof(halves)));
  EXPECT_EQ(halves[4], 0x3fc0);
  int32_t counts[3];
  ASSERT_TRUE((*device)->copyOut(int(count), counts, sizeof(counts)));
  EXPECT_EQ(counts[2], -7);
}

TEST(Device, KnowsItsSpeed) {
  PlanBuilder b;
  auto plan = b.open();
  ASSERT_TRUE(plan);
  auto device = openDevice(**plan, 2);
  ASSERT_TRUE(device);
  DeviceInfo single = (*device)->info(DType::F32), twice = (*device)->info(DType::F64);
  EXPECT_EQ(single.threads, 2);
  EXPECT_GT(single.memoryBytes, 1u << 20);
  EXPECT_FALSE(single.peakSource.empty());
#if defined(__x86_64__)
  EXPECT_GT(single.peakFlops, 2 * 8 * 5e8);
#endif
  EXPECT_LE(twice.peakFlops, single.peakFlops);
}
