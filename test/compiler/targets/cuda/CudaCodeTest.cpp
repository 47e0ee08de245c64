#include "compiler/targets/cuda/CudaCode.h"
#include "test/compiler/kernels/CacheFolder.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

using namespace lmc::codegen;

namespace {

Cubin sample() { return {{1, 2, 0, 255}, {40, 512, 16, 8}}; }

} // namespace

TEST(CudaCode, AKeyTellsEverythingThatCodeDependsOn) {
  CudaKernel kernel = scaleKernel("scale", 2);
  const std::string key = cubinKey(kernel, "sm_90a", "13.0");
  EXPECT_EQ(cubinKey(kernel, "sm_90a", "13.0"), key);
  EXPECT_NE(cubinKey(kernel, "sm_90", "13.0"), key);
  EXPECT_NE(cubinKey(kernel, "sm_90a", "13.1"), key);
  kernel.contract = true;
  EXPECT_NE(cubinKey(kernel, "sm_90a", "13.0"), key);
  kernel.contract = false;
  kernel.source += " ";
  EXPECT_NE(cubinKey(kernel, "sm_90a", "13.0"), key);
}

TEST(CudaCode, ReadsTheCubinThatItWrote) {
  std::optional<Cubin> read = readCubin(writeCubin(sample()));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->image, sample().image);
  EXPECT_EQ(read->resources.registers, 40u);
  EXPECT_EQ(read->resources.sharedBytes, 512u);
  EXPECT_EQ(read->resources.stackBytes, 16u);
  EXPECT_EQ(read->resources.spillBytes, 8u);
  EXPECT_FALSE(readCubin("short"));
}

TEST(CudaCode, UsesWhatTheCacheHolds) {
  LMC_REQUIRE_NVRTC();
  std::vector<CudaKernel> kernels = {scaleKernel("twice", 2), scaleKernel("thrice", 3),
                                     scaleKernel("twice", 2)};
  lmc::test::CacheFolder folder;
  KernelCache cache(folder.path);
  auto made = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(made)) << llvm::toString(made.takeError());
  ASSERT_EQ(made->size(), 3u);
  EXPECT_EQ((*made)[1].kernel.name, "thrice");
  EXPECT_EQ((*made)[0].cubin.image, (*made)[2].cubin.image);
  EXPECT_EQ(folder.entries().size(), 2u);

  // What the cache holds is used as it is.
  cache.keep(cubinKey(kernels[1], "sm_90a", (*Nvrtc::get())->version()), writeCubin(sample()));
  auto again = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(again)) << llvm::toString(again.takeError());
  EXPECT_EQ((*again)[0].cubin.image, (*made)[0].cubin.image);
  EXPECT_EQ((*again)[1].cubin.image, sample().image);
}

TEST(CudaCode, OfManyErrorsTheFirstKernelsIsTold) {
  LMC_REQUIRE_NVRTC();
  std::vector<CudaKernel> kernels = {scaleKernel("fine", 2), scaleKernel("bad", 3),
                                     scaleKernel("worse", 4)};
  kernels[1].source += "int x = nothing;\n";
  kernels[2].source += "int x = nothing;\n";
  lmc::test::CacheFolder folder;
  auto made = compileCuda(kernels, "sm_90a", KernelCache(folder.path));
  ASSERT_FALSE(bool(made));
  std::string message = llvm::toString(made.takeError());
  EXPECT_TRUE(llvm::StringRef(message).starts_with("kernel 'bad' does not compile")) << message;
}
