// The products of a gated MLP with SwiGLU in their epilogues, as ptxas compiles them.
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/targets/cuda/CudaCode.h"
#include "test/compiler/targets/cuda/CudaFixture.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

using namespace lmc::codegen;

// Without spills, and without products that ptxas runs one after the other, which compileCuda()
// refuses; a block of 256 threads has the SM for itself.
TEST(SwigluGemm, DoesNotSpill) {
  LMC_REQUIRE_NVRTC();
  KernelCache cache(KernelCache::defaultDirectory());
  std::vector<CudaKernel> kernels;
  for (auto [n, stages] : {std::pair(256, 4), std::pair(128, 6)})
    for (auto [rows, columns] : {std::pair(32768, 8192), std::pair(1000, 5464)})
      for (auto [function, parameters, arguments] :
           {std::tuple("plainGemm", "const bf16 *x, const bf16 *w, bf16 *y", "x, w, y"),
            std::tuple("swigluGemm", "const bf16 *x, const bf16 *w, bf16 *gu, bf16 *a", "x, w, gu, a"),
            std::tuple("swigluGemmGrad",
                       "const bf16 *dy, const bf16 *w, const bf16 *gu, bf16 *dgu, bf16 *a",
                       "dy, w, gu, dgu, a")}) {
        CudaKernel kernel;
        kernel.name = "product";
        kernel.hero = function;
        kernel.source =
            fmt::format("#include \"lmc/swiglu_gemm.cuh\"\nusing namespace lmc;\nstruct Shape {{\n"
                        "  static constexpr int rows = {}, inner = 2048, columns = {}, blocks = "
                        "132, band = 8;\n"
                        "  static constexpr bool both = true;\n}};\nextern \"C\" __global__ void "
                        "__launch_bounds__(256, 1) product({}) {{\n"
                        "  {}<Shape, {}, {}>({});\n}}\n",
                        rows, columns, parameters, function, n, stages, arguments);
        kernel.threads = 256;
        kernel.sharedBytes = uint32_t(stages * (128 + n) * 64 * 2 + 1024);
        kernel.contract = true;
        kernels.push_back(kernel);
      }
  auto code = compileCuda(kernels, "sm_90a", cache);
  ASSERT_TRUE(bool(code)) << llvm::toString(code.takeError());
  for (const CudaCode &compiled : *code) {
    EXPECT_EQ(compiled.cubin.resources.spillBytes, 0u) << compiled.kernel.source;
    EXPECT_LE(compiled.cubin.resources.registers, 200u) << compiled.kernel.source;
    EXPECT_LE(compiled.kernel.sharedBytes, findCudaArch("sm_90a")->sharedBytesPerBlock);
  }
}
