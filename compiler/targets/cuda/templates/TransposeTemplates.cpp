// The kernels of transpose and quantize_transposed.
#include "compiler/targets/cuda/CudaTypes.h"
#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::divideCeil;
using llvm::formatv;

// As in transpose.cuh.
static constexpr int64_t kTransposeTile = 128, kTransposeThreads = 256,
                         kTransposeBytes = kTransposeTile * (kTransposeTile / 4 + 1) * 4;

// Returns a kernel for a matrix of the shape of `x`.
static CudaKernel transposeKernel(mlir::RankedTensorType x, const char *hero,
                                  const std::string &suffix, const std::string &comment,
                                  const std::string &parameters, const std::string &call) {
  const int64_t rows = x.getDimSize(0), columns = x.getDimSize(1);
  CudaKernel kernel;
  kernel.hero = hero;
  kernel.name = formatv("{0}_{1}x{2}{3}", hero, rows, columns, suffix);
  kernel.source =
      formatv("// {0}\n#include \"lmc/transpose.cuh\"\n\n"
              "struct Shape {{\n  static constexpr int rows = {1}, columns = {2};\n};\n\n"
              "extern \"C\" __global__ void __launch_bounds__({3}) {4}({5}) {{\n  {6};\n}\n",
              comment, rows, columns, kTransposeThreads, kernel.name, parameters, call);
  kernel.grid = {uint32_t(divideCeil(columns, kTransposeTile)),
                 uint32_t(divideCeil(rows, kTransposeTile)), 1};
  kernel.threads = uint32_t(kTransposeThreads);
  kernel.sharedBytes = uint32_t(kTransposeBytes);
  return kernel;
}

static std::vector<TemplateLaunch> transposeLaunch(CudaKernel kernel, CommandOpInterface op) {
  std::vector<TemplateLaunch> launches;
  launches.push_back(onOperands(std::move(kernel), op));
  return launches;
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::TransposeOp op, const CudaArch &) {
  mlir::RankedTensorType x = contentOf(op.getX());
  CudaKernel kernel =
      transposeKernel(x, "transpose", "", "y[j, i] = x[i, j].", "const lmc::u8 *x, lmc::u8 *y",
                      "lmc::transpose<Shape>(x, y)");
  const auto bytes = uint64_t(x.getNumElements());
  kernel.bytes = {bytes, bytes};
  return transposeLaunch(std::move(kernel), op);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTransposedOp op,
                                                      const CudaArch &) {
  mlir::RankedTensorType x = contentOf(op.getX());
  const DataType type = *dataTypeOf(x.getElementType());
  const bool isE4M3 = mlir::isa<mlir::Float8E4M3FNType>(contentOf(op.getCodes()).getElementType());
  CudaKernel kernel = transposeKernel(
      x, "quantize_transposed", formatv("_{0}_{1}", shortName(type), isE4M3 ? "e4m3" : "e5m2"),
      "codes = x / scale, rounded, and its transpose.",
      formatv("const {0} *x, const float *scale, lmc::u8 *codes, lmc::u8 *transposed",
              cudaName(type)),
      formatv("lmc::quantizeTransposed<Shape>(x, scale, codes, transposed,\n"
              "                                 [](float value) {{ return lmc::{0}(value); })",
              isE4M3 ? "toE4M3" : "toE5M2"));
  const auto elements = uint64_t(x.getNumElements());
  kernel.bytes = {elements * uint64_t(elementBytes(type)) + 4, 2 * elements};
  return transposeLaunch(std::move(kernel), op);
}
