// The products of a gated MLP with SwiGLU in their epilogues, as ptxas compiles them.
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaCode.h"
#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"
#include "compiler/targets/cuda/templates/SwigluGemmTemplates.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

#include <gtest/gtest.h>

#include <array>

using namespace lmc::codegen;

// Without spills, and without products that ptxas runs one after the other, which compileCuda()
// refuses; a block of 256 threads has the SM for itself.
TEST(SwigluGemm, DoesNotSpill) {
  LMC_REQUIRE_NVRTC();
  KernelCache cache(KernelCache::defaultDirectory());
  std::vector<CudaKernel> kernels;
  for (bool both : {false, true})
    for (auto [rows, columns] : {std::pair(32768, 8192), std::pair(1000, 5464)}) {
      const SwigluGemmShape shape{rows, 2048, columns, both, 132};
      for (SwigluGemmKernels &pair : std::array{linearSwigluKernels(shape, "forward"),
                                                swigluLinearGradKernels(shape, "gradient")}) {
        kernels.push_back(std::move(pair.rows));
        kernels.push_back(std::move(pair.whole));
      }
    }
  // Of experts, with blocks that stay on their SMs (OLMoE).
  for (bool transposed : {false, true}) {
    ExpertGemmShape shape{131072, 64, 2048, 2048, lmc::DataType::BF16, transposed};
    shape.warpgroups = true;
    shape.blocks = 132;
    kernels.push_back(expertGemmKernel(shape));
  }
  auto code = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(code)) << llvm::toString(code.takeError());
  for (const CudaCode &compiled : *code) {
    EXPECT_EQ(compiled.cubin.resources.spillBytes, 0u) << compiled.kernel.source;
    EXPECT_LE(compiled.cubin.resources.registers, 200u) << compiled.kernel.source;
    EXPECT_LE(compiled.kernel.sharedBytes, findCudaArch("sm_90a")->sharedBytesPerBlock);
  }
}

// A grid has no more blocks than the GPU has SMs, and than there are tiles.
TEST(SwigluGemm, HasABlockForEachTileOrSm) {
  EXPECT_EQ(linearSwigluKernels({32768, 2048, 8192, true, 132}, "f").whole.grid[0], 132u);
  EXPECT_EQ(linearSwigluKernels({200, 2048, 136, true, 132}, "f").whole.grid[0], 4u);
  EXPECT_EQ(swigluLinearGradKernels({200, 2048, 264, true, 132}, "f").whole.grid[0], 4u);
}
