// Device specs: the built-in ones are sound, and a mistake in a file is one clear line.
#include "compiler/cost/DeviceSpec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

using namespace lmc;
using namespace lmc::cost;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

const char *const kSpec = R"(name = "toy"
description = "a device"
arch = "cpu"

[memory]
bytes = "4GiB"
reserve = "1GiB"
bandwidth = 1e10
reachable = 0.5

[peak]
bf16 = 2e12
f32 = 1e12
f64 = 5e11

[vector]
flops = 1e11

[launch]
seconds = 1e-6

[gemm.f32]
sustained = 8e11
tile_rows = 16
tile_columns = 16
units = 4
fixed_depth = 0

[[attention]]
dtype = "f32"
head_dim = 64
forward = 4e11
forward_half_length = 0
backward = 3e11
backward_half_length = 0
)";

std::string replaced(const std::string &from, const std::string &to) {
  std::string text = kSpec;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string errorOf(const std::string &text) {
  auto spec = parseDeviceSpec(text, "toy.toml");
  EXPECT_FALSE(spec);
  return spec ? "" : spec.error().message;
}

} // namespace

TEST(DeviceSpec, AFileIsRead) {
  auto spec = parseDeviceSpec(kSpec, "toy.toml");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "toy");
  EXPECT_EQ(usableBytes(*spec), 3ull << 30);
  EXPECT_EQ(spec->bandwidthFor(1e9), 5e9);
  EXPECT_EQ(spec->peakOf(DataType::BF16), 2e12);
  // Of a dtype without a model of its own: the one there is, scaled by the peaks.
  EXPECT_EQ(spec->gemm[size_t(DataType::F32)].sustained, 8e11);
  EXPECT_EQ(spec->gemm[size_t(DataType::BF16)].sustained, 16e11);
  EXPECT_EQ(spec->deviceLink.bandwidth, 0);
  EXPECT_EQ(spec->gemmWorkspaceBytes, 32ull << 20);
}

TEST(DeviceSpec, TheWorkspaceOfProductsIsASize) {
  auto spec = parseDeviceSpec(replaced("[gemm.f32]", "[gemm]\nworkspace = \"4MiB\"\n[gemm.f32]"), "");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->gemmWorkspaceBytes, 4ull << 20);
}

TEST(DeviceSpec, ProductsOfEightBitsAreOptional) {
  auto without = parseDeviceSpec(kSpec, "toy.toml");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->peakFp8, 0);
  EXPECT_EQ(without->gemmFp8.sustained, 16e11); // as in bf16
  auto scaled = parseDeviceSpec(replaced("f64 = 5e11", "f64 = 5e11\nfp8 = 5e12"), "toy.toml");
  ASSERT_TRUE(scaled) << scaled.error().message;
  EXPECT_EQ(scaled->gemmFp8.sustained, 40e11);
  const std::string own = "\n[gemm.fp8]\nsustained = 3e12\ntile_rows = 8\ntile_columns = 8\nunits "
                          "= 4\nfixed_depth = 0\n";
  auto given = parseDeviceSpec(replaced("f64 = 5e11", "f64 = 5e11\nfp8 = 5e12") + own, "toy.toml");
  ASSERT_TRUE(given) << given.error().message;
  EXPECT_EQ(given->gemmFp8.sustained, 3e12);
  EXPECT_EQ(given->gemmFp8.tileRows, 8);
  EXPECT_THAT(errorOf(kSpec + own), HasSubstr("[gemm.fp8] needs the key fp8 in [peak]"));
}

TEST(DeviceSpec, TheClockOfAKernelAloneIsOptional) {
  const std::string gpu = replaced("arch = \"cpu\"", "arch = \"sm_90a\"") + "[clock]\nhertz = 1.5e9\n";
  auto without = parseDeviceSpec(gpu, "toy.toml");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->clockAlone, 1.5e9);
  auto with = parseDeviceSpec(gpu + "alone = 2e9\n", "toy.toml");
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->clock, 1.5e9);
  EXPECT_EQ(with->clockAlone, 2e9);
  EXPECT_THAT(errorOf(gpu + "alone = 1e9\n"), HasSubstr("clock.alone is below clock.hertz"));
}

TEST(DeviceSpec, AProcessorShareOfALinkIsOptional) {
  const std::string link = "[link.device]\nbase = 0\nlatency = 0\nbandwidth = 1e9\n";
  auto without = parseDeviceSpec(kSpec + link, "toy.toml");
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_EQ(without->deviceLink.processors, 0);
  auto with = parseDeviceSpec(kSpec + link + "processors = 0.15\n", "toy.toml");
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->deviceLink.processors, 0.15);
  EXPECT_THAT(errorOf(kSpec + link + "processors = 1\n"),
              HasSubstr("link.device.processors is 1; it must be from 0 to 0.9"));
}

TEST(DeviceSpec, BuiltInSpecsAreSound) {
  EXPECT_THAT(deviceSpecNames(), ElementsAre("a100-40gb", "a100-80gb", "cpu", "h100-sxm", "h200"));
  for (const std::string &name : deviceSpecNames()) {
    auto spec = loadDeviceSpec(name);
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_EQ(spec->name, name);
    EXPECT_GT(usableBytes(*spec), spec->memoryBytes / 2);
    for (DataType dtype : {DataType::BF16, DataType::F32, DataType::F64}) {
      EXPECT_GT(spec->gemm[size_t(dtype)].sustained, 0);
      EXPECT_LT(spec->gemm[size_t(dtype)].sustained, spec->peakOf(dtype)) << name;
    }
    for (const AttentionModel &model : spec->attention)
      EXPECT_LT(std::max(model.forward, model.backward), spec->peakOf(model.dtype)) << name;
    if (!spec->host) {
      EXPECT_GT(spec->deviceLink.bandwidth, spec->nodeLink.bandwidth);
      EXPECT_GT(spec->deviceLink.processors, spec->nodeLink.processors);
    }
  }
}

// What a plan may use of an 80 GB H100: 79.11 - 3 GiB.
TEST(DeviceSpec, UsableMemoryOfAnH100) {
  EXPECT_NEAR(double(usableBytes(*loadDeviceSpec("h100-sxm"))) / (1ull << 30), 76.11, 0.01);
}

TEST(DeviceSpec, DefaultsByDevice) {
  EXPECT_EQ(defaultDeviceSpec("cpu"), "cpu");
  EXPECT_EQ(defaultDeviceSpec("cpu:znver3"), "cpu");
  EXPECT_EQ(defaultDeviceSpec("cuda:sm_90a"), "h100-sxm");
  EXPECT_EQ(defaultDeviceSpec("cuda:sm_90"), "h100-sxm");
  EXPECT_EQ(defaultDeviceSpec("cuda:sm_80"), "a100-80gb");
  EXPECT_EQ(defaultDeviceSpec("cuda:sm_120"), "");
  TargetConfig target;
  EXPECT_EQ(deviceSpecOf(target, "")->name, "cpu");
  target.spec = "h200";
  EXPECT_EQ(deviceSpecOf(target, "")->name, "h200");
  target = {};
  target.device = "cuda:sm_120";
  auto unknown = deviceSpecOf(target, "");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("no device spec is known for 'cuda:sm_120'; name "
                                                 "one with target.spec: a100-40gb,"));
}

// Two specs for one device would make the choice depend on the order of files.
TEST(DeviceSpec, ADeviceHasAtMostOneDefault) {
  std::set<std::string> devices;
  for (const std::string &name : deviceSpecNames()) {
    auto spec = loadDeviceSpec(name);
    for (const std::string &device : spec->defaultOf)
      EXPECT_TRUE(devices.insert(device).second) << device << " is listed by " << name << " too";
  }
}

TEST(DeviceSpec, RatesAreThoseOfTheSpec) {
  auto spec = parseDeviceSpec(kSpec, "toy.toml");
  Rates rates = ratesOf(&*spec, DataType::F32);
  EXPECT_EQ(rates.flopsPerSecond, 8e11);
  EXPECT_EQ(rates.bytesPerSecond, 5e9);
  EXPECT_EQ(rates.launchSeconds, 1e-6);
  EXPECT_EQ(ratesOf(nullptr, DataType::F32).flopsPerSecond, kDefaultRates.flopsPerSecond);
}

TEST(DeviceSpec, APathIsRelativeToTheFolder) {
  std::string folder = testing::TempDir();
  std::ofstream(folder + "/toy.toml") << kSpec;
  auto spec = loadDeviceSpec("toy.toml", folder);
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->name, "toy");
  auto none = loadDeviceSpec("none.toml", folder);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("none.toml: error: cannot be read: No such file"));
}

TEST(DeviceSpec, AnUnknownNameIsAnError) {
  auto spec = loadDeviceSpec("h100-smx");
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().message,
            "there is no device spec 'h100-smx'; did you mean 'h100-sxm'?; built in are a100-40gb, "
            "a100-80gb, cpu, h100-sxm, h200, and a path ends in .toml");
}

// Each mistake is one line that says where and what.
TEST(DeviceSpec, MistakesAreNamed) {
  EXPECT_EQ(errorOf(replaced("bandwidth = 1e10", "bandwith = 1e10")),
            "toy.toml:8:1: error: unknown key 'bandwith' in [memory]; did you mean 'bandwidth'?");
  EXPECT_EQ(errorOf(replaced("[vector]", "[vektor]")),
            "toy.toml:16:2: error: unknown section [vektor]; did you mean 'vector'?");
  EXPECT_EQ(errorOf(replaced("name = \"toy\"\n", "")), "toy.toml: error: missing key 'name'");
  EXPECT_EQ(errorOf(replaced("bf16 = 2e12\n", "")),
            "toy.toml:11:1: error: missing key 'bf16' in [peak]");
  EXPECT_EQ(errorOf(replaced("[launch]\nseconds = 1e-6\n", "")),
            "toy.toml: error: missing section [launch]");
  EXPECT_EQ(errorOf(replaced("reachable = 0.5", "reachable = 1.5")),
            "toy.toml:9:13: error: memory.reachable is 1.5; it must be from 0.01 to 1");
  EXPECT_EQ(
      errorOf(replaced("\"4GiB\"", "\"4 gigs\"")),
      "toy.toml:6:9: error: memory.bytes: unknown unit 'gigs' in \"4 gigs\"; units are B, KB, "
      "MB, GB, TB, KiB, MiB, GiB, TiB");
  EXPECT_EQ(errorOf(replaced("reserve = \"1GiB\"", "reserve = \"4GiB\"")),
            "toy.toml:7:11: error: memory.reserve leaves nothing of memory.bytes = 4294967296");
  EXPECT_EQ(errorOf(replaced("units = 4", "units = 4.5")),
            "toy.toml:26:9: error: gemm.f32.units must be an integer");
  EXPECT_EQ(errorOf(replaced("dtype = \"f32\"", "dtype = \"fp32\"")),
            "toy.toml:30:9: error: attention.dtype must be one of \"bf16\", \"f32\", \"f64\"");
  EXPECT_EQ(errorOf(replaced("[[attention]]", "[attention]")),
            "toy.toml:29:1: error: attention must be a list of tables; write [[attention]]");
  EXPECT_EQ(errorOf(replaced("[[attention]]", "[swiglu]\nrows = 8\n[[attention]]")),
            "toy.toml:29:1: error: swiglu must be a list of tables; write [[swiglu]]");
  EXPECT_EQ(errorOf(replaced("[[attention]]", "[[swiglu]]\nrows = 8\ninner = 2\n[[attention]]")),
            "toy.toml:29:1: error: missing key 'columns' in [swiglu]");
  EXPECT_EQ(errorOf(replaced("[gemm.f32]", "[gemm.f16]")),
            "toy.toml:22:7: error: unknown key 'f16' in [gemm]; did you mean 'bf16'?");
  EXPECT_THAT(errorOf(replaced("[peak]", "[peak")), HasSubstr("toy.toml:11:6: error: "));
}
