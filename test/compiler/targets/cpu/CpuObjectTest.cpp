// The image: what it asks of the CPU, what it is made of, and how building it fails.
#include "test/compiler/kernels/CacheFolder.h"
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"
#include "test/runtime/checkpoint/TestFolder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include <cstdlib>
#include <filesystem>

using namespace lmc::codegen;
using namespace lmc::codegen::test;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

namespace {

CpuImage build(const char *text, CpuTarget target, std::string &error) {
  auto module = parse(substitute(text, {{"R", "4"}, {"C", "64"}, {"T", "f32"}}), error);
  if (!module)
    return {};
  target.keepAssembly = true;
  auto image = buildCpuImage(*module, target);
  if (!image) {
    error = llvm::toString(image.takeError());
    return {};
  }
  return *image;
}

TEST(CpuObject, baselineAsksForNothingBeyondX86_64) {
  std::string error;
  CpuImage image = build(kRmsNormBf16, {"x86-64"}, error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(image.vectorWidth, 128u);
  EXPECT_TRUE(image.features.empty());
  EXPECT_THAT(image.assembly, Not(HasSubstr("ymm")));
  EXPECT_THAT(image.assembly, Not(HasSubstr("fma")));
  EXPECT_THAT(image.assembly, Not(HasSubstr("call")));
}

TEST(CpuObject, v3UsesAvx2AndFma) {
  std::string error;
  CpuImage image = build(kResidualRmsNorm, {"x86-64-v3"}, error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(image.vectorWidth, 256u);
  EXPECT_THAT(image.features, Contains("avx2"));
  EXPECT_THAT(image.features, Contains("fma"));
  EXPECT_THAT(image.features, Contains("sse4_2"));
  EXPECT_THAT(image.features, Not(Contains("avx512f")));
  EXPECT_THAT(image.assembly, HasSubstr("vfmadd"));
  EXPECT_THAT(image.assembly, HasSubstr("ymm"));
}

TEST(CpuObject, v4UsesWholeRegisters) {
  std::string error;
  CpuImage image = build(kSwiglu, {"x86-64-v4"}, error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(image.vectorWidth, 512u);
  EXPECT_THAT(image.features, Contains("avx512f"));
  EXPECT_THAT(image.features, Not(Contains("avx512_bf16")));
  EXPECT_THAT(image.assembly, HasSubstr("zmm"));
}

// AVX-512's conversion rounds subnormal results to zero: with it a plan for this CPU would give
// other bits than one for a CPU without it.
TEST(CpuObject, bf16RoundsByArithmeticWhateverTheCpuHas) {
  std::string error;
  CpuImage image = build(kRmsNormBf16, {"sapphirerapids"}, error);
  ASSERT_EQ(error, "");
  EXPECT_THAT(image.features, Contains("avx512_bf16"));
  EXPECT_THAT(image.assembly, Not(HasSubstr("vcvtneps2bf16")));
  EXPECT_THAT(image.assembly, Not(HasSubstr("truncsfbf2")));
}

TEST(CpuObject, sameKernelsSameBytes) {
  std::string error;
  CpuImage first = build(kCrossEntropy, {"x86-64-v3"}, error);
  CpuImage second = build(kCrossEntropy, {"x86-64-v3"}, error);
  ASSERT_EQ(error, "");
  EXPECT_EQ(first.object, second.object);
}

// In a folder of its own: other tests make files in that of all programs at the same time.
TEST(CpuObject, leavesNoFilesBehind) {
  const lmc::test::TestFolder folder;
  const char *const former = std::getenv("TMPDIR");
  const std::string back = former ? former : "";
  ::setenv("TMPDIR", folder.path.c_str(), 1);
  std::string error;
  build(kSwiglu, {"x86-64"}, error);
  if (former)
    ::setenv("TMPDIR", back.c_str(), 1);
  else
    ::unsetenv("TMPDIR");
  ASSERT_EQ(error, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path));
}

TEST(CpuObject, errorsSayWhatIsWrong) {
  std::string error;
  build(kSwiglu, {"pentium9"}, error);
  EXPECT_THAT(error, HasSubstr("unknown CPU 'pentium9'"));
  error.clear();
  build(kSwiglu, {"x86-64", 100}, error);
  EXPECT_EQ(error, "a vector width of 100 bits; use 128, 256 or 512");
  error.clear();
  std::string text = kResidualRmsNorm;
  text.replace(text.find("row_reduction"), 13, "elementwise");
  build(text.c_str(), {"x86-64"}, error);
  EXPECT_THAT(error, HasSubstr("a reduction needs hero row_reduction or column_reduction"));
}

TEST(CpuObject, aPlanWithoutKernelsHasAnObject) {
  std::string error;
  auto module = parse("module {}", error);
  ASSERT_TRUE(module) << error;
  auto image = buildCpuImage(*module, {"x86-64-v3"});
  ASSERT_TRUE(bool(image)) << llvm::toString(image.takeError());
  EXPECT_FALSE(image->object.empty());
}

TEST(CpuObject, aCacheKeepsIt) {
  lmc::test::CacheFolder folder;
  std::string error;
  auto build = [&](const char *text, CpuTarget target) {
    target.cache = folder.path;
    auto module = parse(substitute(text, {{"R", "4"}, {"C", "64"}, {"T", "f32"}}), error);
    EXPECT_TRUE(module) << error;
    auto image = buildCpuImage(*module, target);
    EXPECT_TRUE(bool(image)) << llvm::toString(image.takeError());
    return *image;
  };
  const CpuImage made = build(kSwiglu, {"x86-64-v3"});
  ASSERT_EQ(folder.entries().size(), 1u);
  const auto written = std::filesystem::last_write_time(folder.entries()[0]);
  const CpuImage known = build(kSwiglu, {"x86-64-v3"});
  EXPECT_EQ(known.object, made.object);
  EXPECT_EQ(known.features, made.features);
  EXPECT_EQ(known.cpu, made.cpu);
  EXPECT_EQ(known.vectorWidth, made.vectorWidth);
  EXPECT_EQ(folder.entries().size(), 1u);
  EXPECT_EQ(std::filesystem::last_write_time(folder.entries()[0]), written); // it was read
  // Other kernels, another CPU and another width are other objects.
  EXPECT_NE(build(kResidualRmsNorm, {"x86-64-v3"}).object, made.object);
  EXPECT_NE(build(kSwiglu, {"x86-64-v4"}).object, made.object);
  EXPECT_NE(build(kSwiglu, {"x86-64-v3", 128}).object, made.object);
  EXPECT_EQ(folder.entries().size(), 4u);
}

} // namespace
