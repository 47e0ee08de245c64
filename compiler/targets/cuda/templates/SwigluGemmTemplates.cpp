#include "compiler/targets/cuda/templates/SwigluGemmTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::formatv;

namespace {

constexpr uint32_t kThreads = 256;
// The rows and columns of a tile, the number of slices in shared memory, the depth of a slice, and
// plainGemm's Shape::band. bench/gpu/products.cu tries other sizes.
constexpr int64_t kRows = 128, kColumns = 256, kStages = 4, kSlice = 64, kBand = 8;

// Returns a kernel without its grid, shared memory and traffic.
CudaKernel kernelOf(const SwigluGemmShape &shape, const std::string &name, const char *hero,
                    const char *header, const std::string &comment, const std::string &constants,
                    const char *parameters, const std::string &call) {
  CudaKernel kernel;
  kernel.name = name;
  kernel.hero = hero;
  kernel.threads = kThreads;
  kernel.contract = true;
  kernel.source = formatv("// {0}\n#include \"lmc/{1}\"\n\n"
                          "struct Shape {{\n"
                          "  static constexpr int rows = {2}, columns = {3}{4};\n"
                          "  static constexpr bool both = {5};\n"
                          "};\n\n"
                          "extern \"C\" __global__ void __launch_bounds__({6}) {7}({8}) {{\n"
                          "  lmc::{9};\n}\n",
                          comment, header, shape.rows, shape.columns, constants, shape.both,
                          kThreads, kernel.name, parameters, call)
                      .str();
  return kernel;
}

CudaKernel rowsKernel(const SwigluGemmShape &shape, const std::string &name, const char *hero,
                      const std::string &comment, const char *parameters, const char *call) {
  CudaKernel kernel = kernelOf(shape, name, hero, "swiglu.cuh", comment, "", parameters, call);
  kernel.grid = {
      uint32_t(llvm::divideCeil(uint64_t(shape.rows * shape.columns), uint64_t(8 * kThreads))), 1,
      1};
  return kernel;
}

CudaKernel wholeKernel(const SwigluGemmShape &shape, const std::string &name, const char *hero,
                       const std::string &comment, const char *parameters, const char *function,
                       const char *arguments, int64_t tileColumns) {
  const int64_t tiles = int64_t(llvm::divideCeil(uint64_t(shape.rows), uint64_t(kRows)) *
                                llvm::divideCeil(uint64_t(shape.columns), uint64_t(tileColumns)));
  const int64_t blocks = std::min(shape.blocks, tiles);
  CudaKernel kernel = kernelOf(
      shape, name, hero, "swiglu_gemm.cuh", comment,
      formatv(", inner = {0}, blocks = {1}, band = {2}", shape.inner, blocks, kBand), parameters,
      formatv("{0}<Shape, {1}, {2}>({3})", function, kColumns, kStages, arguments));
  kernel.grid = {uint32_t(blocks), 1, 1};
  // The last 1024 bytes let tiles start at multiples of 1024 bytes.
  kernel.sharedBytes = uint32_t(kStages * (kRows + kColumns) * kSlice * 2 + 1024);
  return kernel;
}

} // namespace

SwigluGemmKernels lmc::codegen::linearSwigluKernels(const SwigluGemmShape &shape,
                                                    const std::string &name) {
  const uint64_t a = uint64_t(shape.rows * shape.columns) * 2, gu = 2 * a;
  SwigluGemmKernels kernels;
  kernels.rows = rowsKernel(
      shape, name + "_rows", "swiglu_rows",
      formatv("a = silu(g) u of [g | u] bf16 [{0}, 2 x {1}].", shape.rows, shape.columns),
      "const lmc::bf16 *gu, lmc::bf16 *a", "swigluRows<Shape>(gu, a)");
  kernels.rows.bytes = {gu, a};
  kernels.whole =
      wholeKernel(shape, name, "swiglu_gemm",
                  formatv("[g | u] = x w^T, a = silu(g) u; x bf16 [{0}, {1}], w [2 x {2}, {1}].",
                          shape.rows, shape.inner, shape.columns),
                  "const lmc::bf16 *x, const lmc::bf16 *w, lmc::bf16 *gu, lmc::bf16 *a",
                  "swigluGemm", "x, w, gu, a", kColumns / 2);
  kernels.whole.bytes = {uint64_t((shape.rows + 2 * shape.columns) * shape.inner) * 2,
                         a + (shape.both ? gu : 0)};
  return kernels;
}

SwigluGemmKernels lmc::codegen::swigluLinearGradKernels(const SwigluGemmShape &shape,
                                                        const std::string &name) {
  const uint64_t a = uint64_t(shape.rows * shape.columns) * 2, gu = 2 * a;
  SwigluGemmKernels kernels;
  kernels.rows = rowsKernel(
      shape, name + "_rows", "swiglu_rows_grad",
      formatv("Gradients of silu(g) u of [g | u] bf16 [{0}, 2 x {1}] from that of the result, d.",
              shape.rows, shape.columns),
      "const lmc::bf16 *gu, lmc::bf16 *dgu, lmc::bf16 *d", "swigluRowsGrad<Shape>(d, gu, dgu, d)");
  kernels.rows.bytes = {a + gu, gu + (shape.both ? a : 0)};
  kernels.whole = wholeKernel(
      shape, name, "swiglu_gemm_grad",
      formatv("Gradients of silu(g) u of [g | u] bf16 [{0}, 2 x {2}] from that of the result, dy "
              "w; dy [{0}, {1}], w [{1}, {2}].",
              shape.rows, shape.inner, shape.columns),
      "const lmc::bf16 *dy, const lmc::bf16 *w, const lmc::bf16 *gu, lmc::bf16 *dgu, lmc::bf16 *a",
      "swigluGemmGrad", "dy, w, gu, dgu, a", kColumns);
  kernels.whole.bytes = {uint64_t((shape.rows + shape.columns) * shape.inner) * 2 + gu,
                         gu + (shape.both ? a : 0)};
  return kernels;
}
