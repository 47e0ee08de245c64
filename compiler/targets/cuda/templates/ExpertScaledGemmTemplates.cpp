// The kernel of expert_scaled_linear.
#include "compiler/targets/cuda/CudaTypes.h"
#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::formatv;

// As in expert_gemm.cuh and expert_scaled_gemm.cuh. A tile of warpgroups and its slices have 128
// rows and columns, of a byte each.
static constexpr int64_t kScaledTile = 128, kScaledStages = 6, kScaledPlainTile = 32,
                         kScaledPlainBytes = 2 * 32 * 33 * 4;

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::ExpertScaledLinearOp op,
                                                      const CudaArch &arch) {
  mlir::RankedTensorType x = contentOf(op.getX()), y = contentOf(op.getY());
  const DataType type = *dataTypeOf(y.getElementType());
  const int64_t rows = x.getDimSize(0), inner = x.getDimSize(1), columns = y.getDimSize(1),
                experts = contentOf(op.getOffsets()).getDimSize(0) - 1;
  const bool isE4M3 = mlir::isa<mlir::Float8E4M3FNType>(x.getElementType());
  const bool groups = arch.hasWarpgroups() && type == DataType::BF16 && !op.getTransposed();
  CudaKernel kernel;
  kernel.hero = "expert_gemm";
  kernel.name =
      formatv("expert_scaled_gemm_{0}x{1}_{2}x{3}{4}_{5}_{6}", rows, inner, experts, columns,
              op.getTransposed() ? "_t"
              : op.getBeside()   ? "_b"
                                 : "",
              isE4M3 ? "e4m3" : "e5m2", shortName(type));
  kernel.source =
      formatv(
          "// y[r, :] = x[r, :] w_e^T for the rows r of each expert e, of 8-bit floats with scales "
          "for blocks.\n"
          "#include \"lmc/expert_scaled_gemm.cuh\"\n\n"
          "struct Shape {{\n"
          "  static constexpr int rows = {0}, experts = {1}, inner = {2}, columns = {3};\n"
          "  static constexpr bool transposed = {4}, beside = {5}, isE4M3 = {6};\n"
          "};\n\n",
          rows, experts, inner, columns, op.getTransposed(), op.getBeside(), isE4M3)
          .str() +
      formatv(
          "extern \"C\" __global__ void __launch_bounds__(256, 1)\n"
          "{0}(const lmc::u8 *x, const lmc::u8 *w, const lmc::i32 *offsets, const float *xScales, "
          "const float *wScales, {1} *y) {{\n  lmc::expertScaledGemm{2}<Shape, {3}>(x, w, "
          "offsets, xScales, wScales, y);\n}\n",
          kernel.name, cudaName(type), groups ? "Groups" : "Plain",
          groups ? std::to_string(kScaledStages) : std::string(cudaName(type)))
          .str();
  const int64_t tile = groups ? kScaledTile : kScaledPlainTile;
  const auto down = uint32_t(rows / tile + std::min(experts, rows)),
             across = uint32_t(columns / tile);
  kernel.grid = {down, across, 1};
  if (groups)
    kernel.grid = {down * across, 1, 1}; // blocks that share rows of x have consecutive numbers
  kernel.threads = 256;
  kernel.sharedBytes =
      uint32_t(groups ? kScaledStages * 2 * kScaledTile * kScaledTile + 1024 : kScaledPlainBytes);
  kernel.contract = true;
  auto bytesOf = [](mlir::Value operand) {
    mlir::RankedTensorType type = contentOf(operand);
    return uint64_t(type.getNumElements() * type.getElementTypeBitWidth() / 8);
  };
  kernel.bytes.written = bytesOf(op.getY());
  for (mlir::Value read :
       {op.getX(), op.getWeight(), op.getOffsets(), op.getXScales(), op.getWeightScales()})
    kernel.bytes.read += bytesOf(read);
  std::vector<TemplateLaunch> launches;
  launches.push_back(onOperands(std::move(kernel), op));
  return launches;
}
