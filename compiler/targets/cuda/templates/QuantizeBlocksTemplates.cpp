// The kernels of the casts with a scale for each block: quantize_rows, quantize_columns,
// quantize_tiles, quantize_rows_columns and quantize_tiles_both, and those that also compute SwiGLU
// or its gradient.
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

// A matrix that a kernel reads, and its name there.
using Input = std::pair<mlir::Value, const char *>;

// Returns the launch of a kernel that calls `function`, of the file `header`, for the matrices
// `inputs`. If the op also casts the transpose, `transposed` and `transposedScales` are its
// results. `width` is the number of columns of SwiGLU's halves.
template <typename Op>
static std::vector<TemplateLaunch>
castLaunch(Op op, llvm::ArrayRef<Input> inputs, const char *hero, const char *function,
           const char *comment, std::array<uint32_t, 3> grid, int64_t sharedBytes,
           const char *header = "quantize_blocks", int64_t width = 0) {
  constexpr bool castsBoth = requires { op.getTransposed(); };
  mlir::RankedTensorType read = contentOf(inputs.back().first), codes = contentOf(op.getCodes()),
                         scales = contentOf(op.getScales()), transposedScales = scales;
  if constexpr (castsBoth)
    transposedScales = contentOf(op.getTransposedScales());
  const DataType type = *dataTypeOf(read.getElementType());
  const bool isE4M3 = mlir::isa<mlir::Float8E4M3FNType>(codes.getElementType());
  const auto elements = codes.getNumElements();
  const int64_t rows = read.getDimSize(0), columns = elements / rows; // of what is cast
  CudaKernel kernel;
  kernel.bytes.written = uint64_t(elements + 4 * scales.getNumElements());
  if (castsBoth)
    kernel.bytes.written += uint64_t(elements + 4 * transposedScales.getNumElements());
  std::string parameters, arguments;
  for (auto [value, name] : inputs) {
    parameters += formatv("const {0} *{1}, ", cudaName(type), name);
    arguments += std::string(name) + ", ";
    kernel.bytes.read += uint64_t(contentOf(value).getNumElements() * elementBytes(type));
  }
  const char *moreParameters = castsBoth ? ", lmc::u8 *transposed, float *transposedScales" : "";
  const char *moreArguments = castsBoth ? ", transposed, transposedScales" : "";
  const std::string widthOfHalves = width ? formatv(", width = {0}", width).str() : "";
  kernel.hero = hero;
  kernel.name = formatv("{0}_{1}x{2}_{3}_{4}", hero, rows, columns, shortName(type),
                        isE4M3 ? "e4m3" : "e5m2");
  kernel.source =
      formatv("// {0}\n#include \"lmc/{1}.cuh\"\n\n"
              "struct Shape {{\n  static constexpr int rows = {2}, columns = {3}{4};\n"
              "  static constexpr int pitch = {5}, transposedPitch = {6};\n"
              "  using Format = lmc::Format{7};\n};\n\n"
              "extern \"C\" __global__ void __launch_bounds__({8})\n"
              "{9}({10}lmc::u8 *codes, float *scales{11}) {{\n"
              "  lmc::{12}<Shape>({13}codes, scales{14});\n}\n",
              comment, header, rows, columns, widthOfHalves, scales.getDimSize(1),
              transposedScales.getDimSize(1), isE4M3 ? "E4M3" : "E5M2", kCastThreads, kernel.name,
              parameters, moreParameters, function, arguments, moreArguments);
  kernel.grid = grid;
  kernel.threads = uint32_t(kCastThreads);
  kernel.sharedBytes = uint32_t(sharedBytes);
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
  return castLaunch(op, {{op.getX(), "x"}}, "quantize_rows", "quantizeRows",
                    "codes = x / scale, rounded, with a scale for 128 elements of a row.",
                    {blocksAlong(op.getX(), 0, 8), blocksAlong(op.getX(), 1), 1}, 0);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, {{op.getX(), "x"}}, "quantize_columns", "quantizeColumns",
      "The transpose of x / scale, rounded, with a scale for 128 elements of a column.",
      {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeRowsColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, {{op.getX(), "x"}}, "quantize_rows_columns", "quantizeRowsColumns",
      "x / scale, rounded, with a scale for 128 elements of a row, and its transpose, "
      "with one for 128 of a column.",
      {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getGu(), "gu"}}, "swiglu_quantize", "swigluQuantize",
                    "silu(g) u, cast along rows and along columns.",
                    {blocksAlong(op.getGu(), 1, 2 * kScaledBlock), blocksAlong(op.getGu(), 0), 1},
                    kColumnBytes, "swiglu_quantize", contentOf(op.getGu()).getDimSize(1) / 2);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeRowsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, {{op.getGu(), "gu"}}, "swiglu_quantize_rows", "swigluQuantizeRows",
      "silu(g) u, cast along rows.",
      {blocksAlong(op.getGu(), 0, 8), blocksAlong(op.getGu(), 1, 2 * kScaledBlock), 1}, 0,
      "swiglu_quantize", contentOf(op.getGu()).getDimSize(1) / 2);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getGu(), "gu"}}, "swiglu_quantize_columns", "swigluQuantizeColumns",
                    "silu(g) u, cast along columns.",
                    {blocksAlong(op.getGu(), 1, 2 * kScaledBlock), blocksAlong(op.getGu(), 0), 1},
                    kColumnBytes, "swiglu_quantize", contentOf(op.getGu()).getDimSize(1) / 2);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluGradQuantizeOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, {{op.getDy(), "dy"}, {op.getGu(), "gu"}}, "swiglu_grad_quantize", "swigluGradQuantize",
      "The gradient of silu(g) u for g and u, cast along rows and along columns.",
      {blocksAlong(op.getDy(), 1), blocksAlong(op.getDy(), 0), 1},
      kColumnBytes + kScaledBlock * kScaledBlock *
                         elementBytes(*dataTypeOf(contentOf(op.getDy()).getElementType())),
      "swiglu_quantize", contentOf(op.getDy()).getDimSize(1));
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}}, "quantize_tiles", "quantizeTiles",
                    "codes = x / scale, rounded, with a scale for 128 x 128 elements.",
                    {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, 128);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesBothOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}}, "quantize_tiles_both", "quantizeTilesBoth",
                    "x / scale, rounded, with a scale for 128 x 128 elements, and its transpose.",
                    {blocksAlong(op.getX(), 1), blocksAlong(op.getX(), 0), 1}, kColumnBytes);
}
