// The kernels of the casts with a scale for each block: quantize_rows, quantize_columns,
// quantize_tiles, quantize_rows_columns and quantize_tiles_both, and those that also compute
// SwiGLU, its gradient or an RMS norm.
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

// A tensor that a kernel reads or writes, and its name there.
using Argument = std::pair<mlir::Value, const char *>;

// What differs between the kernels of casts.
struct Casting {
  const char *hero, *function, *comment; // the kernel calls `function`
  std::array<uint32_t, 3> grid;
  int64_t sharedBytes;
  const char *header = "quantize_blocks"; // the file of `function`
  std::string constants = "";             // further ones of Shape
};

// Returns the launch of the kernel that reads `inputs`, first a matrix with the rows of what is
// cast, and writes the results of a cast, and then `further`.
template <typename Op>
static std::vector<TemplateLaunch> castLaunch(Op op, llvm::ArrayRef<Argument> inputs,
                                              const Casting &casting,
                                              llvm::ArrayRef<Argument> further = {}) {
  llvm::SmallVector<Argument> results{{op.getCodes(), "codes"}, {op.getScales(), "scales"}};
  mlir::RankedTensorType codes = contentOf(op.getCodes()), scales = contentOf(op.getScales()),
                         transposedScales = scales;
  if constexpr (requires { op.getTransposed(); }) {
    results.append(
        {{op.getTransposed(), "transposed"}, {op.getTransposedScales(), "transposedScales"}});
    transposedScales = contentOf(op.getTransposedScales());
  }
  results.append(further.begin(), further.end());
  const mlir::RankedTensorType read = contentOf(inputs.front().first);
  const bool isE4M3 = mlir::isa<mlir::Float8E4M3FNType>(codes.getElementType());
  const int64_t rows = read.getDimSize(0), columns = codes.getNumElements() / rows;
  CudaKernel kernel;
  std::string parameters, arguments;
  auto add = [&](Argument argument, bool isRead) {
    const mlir::RankedTensorType content = contentOf(argument.first);
    const std::optional<DataType> type = dataTypeOf(content.getElementType()); // none of codes
    (isRead ? kernel.bytes.read : kernel.bytes.written) +=
        uint64_t(content.getNumElements() * (type ? elementBytes(*type) : 1));
    const char *separator = parameters.empty() ? "" : ", ";
    parameters += formatv("{0}{1}{2} *{3}", separator, isRead ? "const " : "",
                          type ? cudaName(*type) : "lmc::u8", argument.second);
    arguments += formatv("{0}{1}", separator, argument.second);
  };
  for (Argument input : inputs)
    add(input, /*isRead=*/true);
  for (Argument result : results)
    add(result, /*isRead=*/false);
  kernel.hero = casting.hero;
  kernel.name = formatv("{0}_{1}x{2}_{3}_{4}", casting.hero, rows, columns,
                        shortName(*dataTypeOf(read.getElementType())), isE4M3 ? "e4m3" : "e5m2");
  kernel.source =
      formatv("// {0}\n#include \"lmc/{1}.cuh\"\n\n"
              "struct Shape {{\n  static constexpr int rows = {2}, columns = {3};\n"
              "  static constexpr int pitch = {4}, transposedPitch = {5};\n{6}"
              "  using Format = lmc::Format{7};\n};\n\n"
              "extern \"C\" __global__ void __launch_bounds__({8})\n"
              "{9}({10}) {{\n  lmc::{11}<Shape>({12});\n}\n",
              casting.comment, casting.header, rows, columns, scales.getDimSize(1),
              transposedScales.getDimSize(1), casting.constants, isE4M3 ? "E4M3" : "E5M2",
              kCastThreads, kernel.name, parameters, casting.function, arguments);
  kernel.grid = casting.grid;
  kernel.threads = uint32_t(kCastThreads);
  kernel.sharedBytes = uint32_t(casting.sharedBytes);
  std::vector<TemplateLaunch> launches;
  launches.push_back(onOperands(std::move(kernel), op));
  return launches;
}

// Returns how many blocks of `block` elements dimension `dim` of x has.
static uint32_t blocksAlong(mlir::Value x, unsigned dim, int64_t block = kScaledBlock) {
  return uint32_t(divideCeil(contentOf(x).getDimSize(dim), block));
}

// Returns a grid with a thread block for each tile of x.
static std::array<uint32_t, 3> tilesOf(mlir::Value x) {
  return {blocksAlong(x, 1), blocksAlong(x, 0), 1};
}

// Returns the declaration of a constant of Shape.
template <typename Value>
static std::string constant(const char *type, const char *name, Value value) {
  return formatv("  static constexpr {0} {1} = {2};\n", type, name, value).str();
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeRowsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}},
                    {"quantize_rows",
                     "quantizeRows",
                     "codes = x / scale, rounded, with a scale for 128 elements of a row.",
                     {blocksAlong(op.getX(), 0, 8), blocksAlong(op.getX(), 1), 1},
                     0});
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}},
                    {"quantize_columns", "quantizeColumns",
                     "The transpose of x / scale, rounded, with a scale for 128 elements of a "
                     "column.",
                     tilesOf(op.getX()), kColumnBytes});
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeRowsColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}},
                    {"quantize_rows_columns", "quantizeRowsColumns",
                     "x / scale, rounded, with a scale for 128 elements of a row, and its "
                     "transpose, with one for 128 of a column.",
                     tilesOf(op.getX()), kColumnBytes});
}

// Returns the Casting of a kernel that computes SwiGLU of the halves of `gu`.
static Casting castingOfSwiglu(mlir::Value gu, const char *hero, const char *function,
                               const char *comment) {
  const uint32_t tiles = blocksAlong(gu, 1, 2 * kScaledBlock);
  return {hero,
          function,
          comment,
          {tiles, blocksAlong(gu, 0), 1},
          kColumnBytes,
          "swiglu_quantize",
          constant("int", "width", contentOf(gu).getDimSize(1) / 2)};
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getGu(), "gu"}},
                    castingOfSwiglu(op.getGu(), "swiglu_quantize", "swigluQuantize",
                                    "silu(g) u, cast along rows and along columns."));
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeRowsOp op,
                                                      const CudaArch &) {
  Casting casting = castingOfSwiglu(op.getGu(), "swiglu_quantize_rows", "swigluQuantizeRows",
                                    "silu(g) u, cast along rows.");
  casting.grid = {blocksAlong(op.getGu(), 0, 8), casting.grid[0], 1};
  casting.sharedBytes = 0;
  return castLaunch(op, {{op.getGu(), "gu"}}, casting);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluQuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getGu(), "gu"}},
                    castingOfSwiglu(op.getGu(), "swiglu_quantize_columns", "swigluQuantizeColumns",
                                    "silu(g) u, cast along columns."));
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::SwigluGradQuantizeOp op,
                                                      const CudaArch &) {
  Casting casting =
      castingOfSwiglu(op.getGu(), "swiglu_grad_quantize", "swigluGradQuantize",
                      "The gradient of silu(g) u for g and u, cast along rows and along columns.");
  casting.sharedBytes += kScaledBlock * kScaledBlock *
                         elementBytes(*dataTypeOf(contentOf(op.getDy()).getElementType()));
  return castLaunch(op, {{op.getDy(), "dy"}, {op.getGu(), "gu"}}, casting);
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::NormQuantizeRowsOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}, {op.getWeight(), "weight"}},
                    {"norm_quantize_rows",
                     "normQuantizeRows",
                     "The RMS norm of x, cast along rows.",
                     {uint32_t(contentOf(op.getX()).getDimSize(0)), 1, 1},
                     32,
                     "norm_quantize",
                     constant("float", "eps", real(op.getEps().convertToDouble()))},
                    {{op.getReciprocals(), "reciprocals"}});
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::NormQuantizeColumnsOp op,
                                                      const CudaArch &) {
  return castLaunch(
      op, {{op.getX(), "x"}, {op.getWeight(), "weight"}, {op.getReciprocals(), "reciprocals"}},
      {"norm_quantize_columns", "normQuantizeColumns", "The RMS norm of x, cast along columns.",
       tilesOf(op.getX()), kColumnBytes, "norm_quantize"});
}

// Returns the constant that says whether a cast of tiles rounds to bf16 first.
template <typename Op> static std::string roundedOf(Op op) {
  return constant("bool", "rounded", op.getRounded() ? "true" : "false");
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}},
                    {"quantize_tiles", "quantizeTiles",
                     "codes = x / scale, rounded, with a scale for 128 x 128 elements.",
                     tilesOf(op.getX()), 128, "quantize_blocks", roundedOf(op)});
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::QuantizeTilesBothOp op,
                                                      const CudaArch &) {
  return castLaunch(op, {{op.getX(), "x"}},
                    {"quantize_tiles_both", "quantizeTilesBoth",
                     "x / scale, rounded, with a scale for 128 x 128 elements, and its transpose.",
                     tilesOf(op.getX()), kColumnBytes, "quantize_blocks", roundedOf(op)});
}
