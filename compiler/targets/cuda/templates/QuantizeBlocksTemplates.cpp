// The kernels of the casts with a scale for each block: quantize_rows, quantize_columns,
// quantize_tiles, quantize_rows_columns and quantize_tiles_both.
#include "compiler/targets/cuda/CudaTypes.h"
#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::divideCeil;
using llvm::formatv;

// As in transpose.cuh and quantize_blocks.cuh.
static constexpr int64_t kScaledBlock = 128, kCastThreads = 256,
                         kColumnBytes =
                             kScaledBlock * (kScaledBlock / 4 + 1) * 4 + 8 * kScaledBlock * 4;

// Returns the launch of a kernel that calls `function`. If the op also casts the transpose of x,
// `transposed` and `transposedScales` are its results.
template <typename Op>
static std::vector<TemplateLaunch> castLaunch(Op op, const char *hero, const char *function,
                                              const char *comment, std::array<uint32_t, 3> grid,
                                              int64_t sharedBytes) {
  constexpr bool castsBoth = requires { op.getTransposed(); };
  mlir::RankedTensorType x = contentOf(op.getX()), scales = contentOf(op.getScales()),
                         transposedScales = scales;
  if constexpr (castsBoth)
    transposedScales = contentOf(op.getTransposedScales());
  const DataType type = *dataTypeOf(x.getElementType());
  const bool isE4M3 = mlir::isa<mlir::Float8E4M3FNType>(contentOf(op.getCodes()).getElementType());
  const int64_t rows = x.getDimSize(0), columns = x.getDimSize(1);
  const char *moreParameters = castsBoth ? ", lmc::u8 *transposed, float *transposedScales" : "";
  const char *moreArguments = castsBoth ? ", transposed, transposedScales" : "";
  CudaKernel kernel;
  kernel.hero = hero;
  kernel.name = formatv("{0}_{1}x{2}_{3}_{4}", hero, rows, columns, shortName(type),
                        isE4M3 ? "e4m3" : "e5m2");
  kernel.source = formatv("// {0}\n#include \"lmc/quantize_blocks.cuh\"\n\n"
                          "struct Shape {{\n  static constexpr int rows = {1}, columns = {2};\n"
                          "  static constexpr int pitch = {3}, transposedPitch = {4};\n"
                          "  using Format = lmc::Format{5};\n};\n\n"
                          "extern \"C\" __global__ void __launch_bounds__({6})\n"
                          "{7}(const {8} *x, lmc::u8 *codes, float *scales{9}) {{\n"
                          "  lmc::{10}<Shape>(x, codes, scales{11});\n}\n",
                          comment, rows, columns, scales.getDimSize(1),
                          transposedScales.getDimSize(1), isE4M3 ? "E4M3" : "E5M2", kCastThreads,
                          kernel.name, cudaName(type), moreParameters, function, moreArguments);
  kernel.grid = grid;
  kernel.threads = uint32_t(kCastThreads);
  kernel.sharedBytes = uint32_t(sharedBytes);
  const auto elements = uint64_t(x.getNumElements());
  kernel.bytes = {elements * uint64_t(elementBytes(type)),
                  elements + 4 * uint64_t(scales.getNumElements())};
  if (castsBoth)
    kernel.bytes.written += elements + 4 * uint64_t(transposedScales.getNumElements());
  std::vector<TemplateLaunch> launches;
  launches.push_back(onOperands(std::move(kernel), op));
  return launches;
}

// Returns how many blocks of `block` elements dimension `dim` of x has.
static uint32_t blocksAlong(mlir::Value x, unsigned dim, int64_t block = kScaledBlock) {
  return uint32_t(divideCeil(contentOf(x).getDimSize(dim), block));
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeRowsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, "quantize_rows", "quantizeRows",
                    "codes = x / scale, rounded, with a scale for 128 elements of a row.",
                    {blocksAlong(op.getX(), 0, 8), blocksAlong(op.getX(), 1), 1}, 0);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, "quantize_columns", "quantizeColumns",
      "The transpose of x / scale, rounded, with a scale for 128 elements of a column.",
      {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeRowsColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, "quantize_rows_columns", "quantizeRowsColumns",
      "x / scale, rounded, with a scale for 128 elements of a row, and its transpose, "
      "with one for 128 of a column.",
      {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesOp op,
                                                      const CudaArch &) {
  return castLaunch(op, "quantize_tiles", "quantizeTiles",
                    "codes = x / scale, rounded, with a scale for 128 x 128 elements.",
                    {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, 128);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesBothOp op,
                                                      const CudaArch &) {
  return castLaunch(op, "quantize_tiles_both", "quantizeTilesBoth",
                    "x / scale, rounded, with a scale for 128 x 128 elements, and its transpose.",
                    {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}
