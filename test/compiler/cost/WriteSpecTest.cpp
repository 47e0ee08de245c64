// A spec that was written is read as the same spec.
#include "compiler/cost/DeviceSpec.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::cost;

TEST(WriteSpec, WhatIsWrittenIsReadAsTheSame) {
  for (const std::string &name : deviceSpecNames()) {
    auto spec = loadDeviceSpec(name);
    ASSERT_TRUE(spec) << spec.error().message;
    const std::string text = deviceSpecToml(*spec);
    auto again = parseDeviceSpec(text, "written.toml");
    ASSERT_TRUE(again) << again.error().message << "\n" << text;
    EXPECT_EQ(deviceSpecToml(*again), text);
    EXPECT_EQ(again->name, name);
    EXPECT_EQ(again->defaultOf, spec->defaultOf);
    EXPECT_EQ(again->host, spec->host);
    EXPECT_EQ(again->memoryBytes, spec->memoryBytes);
    EXPECT_EQ(again->reserveBytes, spec->reserveBytes);
    EXPECT_EQ(again->cacheBytes, spec->cacheBytes);
    EXPECT_EQ(again->gemmWorkspaceBytes, spec->gemmWorkspaceBytes);
    const std::pair<double, double> numbers[] = {
        {again->memoryBandwidth, spec->memoryBandwidth},
        {again->reachable, spec->reachable},
        {again->cacheBandwidth, spec->cacheBandwidth},
        {again->vectorFlops, spec->vectorFlops},
        {again->clock, spec->clock},
        {again->clockAlone, spec->clockAlone},
        {again->launchSeconds, spec->launchSeconds},
        {again->deviceLink.bandwidth, spec->deviceLink.bandwidth},
        {again->deviceLink.processors, spec->deviceLink.processors},
        {again->nodeLink.processors, spec->nodeLink.processors},
        {again->nodeLink.latency, spec->nodeLink.latency}};
    for (const auto &[read, written] : numbers)
      EXPECT_NEAR(read, written, 1e-5 * written) << name;
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_NEAR(again->peak[i], spec->peak[i], 1e-5 * spec->peak[i]);
      EXPECT_NEAR(again->gemm[i].sustained, spec->gemm[i].sustained,
                  1e-5 * spec->gemm[i].sustained);
      EXPECT_EQ(again->gemm[i].tileRows, spec->gemm[i].tileRows);
      EXPECT_EQ(again->gemm[i].units, spec->gemm[i].units);
      EXPECT_EQ(again->gemm[i].maxSplits, spec->gemm[i].maxSplits);
    }
    ASSERT_EQ(again->attention.size(), spec->attention.size());
    for (size_t i = 0; i < spec->attention.size(); ++i) {
      EXPECT_EQ(again->attention[i].dtype, spec->attention[i].dtype);
      EXPECT_EQ(again->attention[i].headDim, spec->attention[i].headDim);
      EXPECT_EQ(again->attention[i].backward, spec->attention[i].backward);
    }
  }
}

TEST(WriteSpec, RatesOfSwigluAreReadAgain) {
  auto spec = loadDeviceSpec("h100-sxm");
  ASSERT_TRUE(spec) << spec.error().message;
  spec->swiglu = {{4096, 2048, 8192, 0.9, 0}, {8192, 4096, 14336, 1.1, 0.8}};
  auto again = parseDeviceSpec(deviceSpecToml(*spec), "written.toml");
  ASSERT_TRUE(again) << again.error().message;
  ASSERT_EQ(again->swiglu.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again->swiglu[i].rows, spec->swiglu[i].rows);
    EXPECT_EQ(again->swiglu[i].inner, spec->swiglu[i].inner);
    EXPECT_EQ(again->swiglu[i].columns, spec->swiglu[i].columns);
    EXPECT_EQ(again->swiglu[i].forward, spec->swiglu[i].forward);
    EXPECT_EQ(again->swiglu[i].backward, spec->swiglu[i].backward);
  }
}

TEST(WriteSpec, NumbersAndSectionsHaveTheirComments) {
  auto spec = loadDeviceSpec("h100-sxm");
  ASSERT_TRUE(spec);
  spec->name = "a \"b\" \\c";
  const std::string text = deviceSpecToml(*spec, "# header\n",
                                          {{"memory.bandwidth", "data sheet"},
                                           {"gemm.bf16", "tiles"},
                                           {"attention.1", "heads of 64"}});
  EXPECT_EQ(text.find("# header\nname = \"a \\\"b\\\" \\\\c\"\n"), 0u) << text;
  EXPECT_NE(text.find("bandwidth = 3.35e+12       # data sheet\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[gemm.bf16]                # tiles\n"), std::string::npos) << text;
  EXPECT_NE(text.find("[[attention]]              # heads of 64\n"), std::string::npos) << text;
  EXPECT_TRUE(parseDeviceSpec(text, "written.toml"));
}
