#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::divideCeil;
using llvm::formatv;

namespace {

// As in expert_gemm.cuh.
constexpr int64_t kExpertTile = ExpertGemmShape::kTile, kExpertSlice = 32, kExpertStages = 4;
constexpr uint32_t kExpertThreads = 256;

// On an H100 (131072 rows of 2048 elements, 64 experts), tiles of 128 x 256 with 4 slices in shared
// memory reach 680 TFLOP/s. Tiles of 128 x 128 reach 540 TFLOP/s with 6 slices, and 512 with 3
// slices and two blocks per SM (bench/results/gpu-2026-11-26-h100.md).
constexpr int64_t kGroupSlice = 64;
struct GroupTile {
  int64_t columns, stages;
};
constexpr GroupTile kWideGroup = {ExpertGemmShape::kGroupColumns, 4}, kNarrowGroup = {128, 6};

bool usesGroups(const ExpertGemmShape &shape) { return shape.isTiled() && shape.warpgroups; }
bool isPersistent(const ExpertGemmShape &shape) { return usesGroups(shape) && shape.blocks > 0; }

// `columns` is the number of columns of the result, which is shape.inner for the gradient d.
GroupTile groupTileOf(int64_t columns) {
  return columns > kNarrowGroup.columns ? kWideGroup : kNarrowGroup;
}

int64_t tileOf(const ExpertGemmShape &shape) {
  return shape.isTiled() ? kExpertTile : ExpertGemmShape::kPlainTile;
}

// Returns the number of columns of a tile of a result with `columns` columns.
int64_t tileColumnsOf(const ExpertGemmShape &shape, int64_t columns) {
  return usesGroups(shape) ? groupTileOf(columns).columns : tileOf(shape);
}

uint32_t sharedBytesOf(const ExpertGemmShape &shape, GroupTile group) {
  if (usesGroups(shape)) // + 1024: tiles start at multiples of 1024 bytes
    return uint32_t(group.stages * (kExpertTile + group.columns) * kGroupSlice * 2 + 1024);
  return shape.isTiled() ? uint32_t(2 * kExpertStages * kExpertTile * kExpertSlice * 2)
                         : uint32_t(2 * 32 * 33 * elementBytes(shape.sumType()));
}

// Returns a kernel without its grid and traffic. `columns` is the number of columns of the result.
CudaKernel expertKernelOf(const ExpertGemmShape &shape, int64_t columns, const std::string &name,
                          const char *hero, const std::string &comment, const char *function,
                          const char *parameters, const char *arguments) {
  CudaKernel kernel;
  kernel.name = name;
  kernel.hero = hero;
  const char *type = cudaName(shape.type), *sum = cudaName(shape.sumType());
  const bool groups = usesGroups(shape);
  const GroupTile group = groupTileOf(columns);
  const std::string templates = groups
                                    ? formatv("Shape, {0}, {1}", group.columns, group.stages).str()
                                : shape.isTiled() ? std::string("Shape")
                                                  : formatv("Shape, {0}, {1}", sum, type).str();
  kernel.source =
      formatv("// {0}\n#include \"lmc/{10}.cuh\"\n\n"
              "struct Shape {{\n"
              "  static constexpr int rows = {1}, experts = {2}, inner = {3}, columns = {4}{11};\n"
              "  static constexpr bool transposed = {5}, accumulate = {6};\n"
              "};\n\n"
              "extern \"C\" __global__ void __launch_bounds__({7}, {8}) {9}(",
              comment, shape.rows, shape.experts, shape.inner, shape.columns, shape.transposed,
              shape.accumulate, kExpertThreads, shape.isTiled() && !groups ? 2 : 1, name,
              isPersistent(shape) ? "persistent_gemm" : "expert_gemm",
              isPersistent(shape) ? formatv(", blocks = {0}", shape.blocks).str() : "")
          .str() +
      formatv(parameters, type, shape.isTiled() ? "float" : sum).str() + ") {\n  lmc::" + function +
      (isPersistent(shape) ? "Persistent"
       : groups            ? "Groups"
       : shape.isTiled()   ? ""
                           : "Plain") +
      "<" + templates + ">(" + arguments + ");\n}\n";
  kernel.threads = kExpertThreads;
  kernel.sharedBytes = sharedBytesOf(shape, group);
  kernel.contract = true;
  return kernel;
}

} // namespace

CudaKernel lmc::codegen::expertGemmKernel(const ExpertGemmShape &shape) {
  const int64_t tile = tileOf(shape), bytes = elementBytes(shape.type);
  const std::string name =
      formatv("expert_gemm_{0}x{1}_{2}x{3}{4}_{5}", shape.rows, shape.inner, shape.experts,
              shape.columns, shape.transposed ? "_t" : "", shortName(shape.type))
          .str() +
      (isPersistent(shape) ? "_persistent" : "");
  const std::string comment = formatv(
      "y[r, :] = x[r, :] w_e{0} for the rows r of each expert e; x {1} [{2}, {3}], w [{4}, {5}, "
      "{6}], y [{2}, {7}].",
      shape.transposed ? "" : "^T", shortName(shape.type), shape.rows, shape.inner, shape.experts,
      shape.transposed ? shape.inner : shape.columns,
      shape.transposed ? shape.columns : shape.inner, shape.columns);
  CudaKernel kernel = expertKernelOf(
      shape, shape.columns, name, "expert_gemm", comment, "expertGemm",
      "const {0} *x, const {0} *w, const lmc::i32 *offsets, {0} *y", "x, w, offsets, y");
  const uint32_t down = uint32_t(shape.rows / tile + std::min(shape.experts, shape.rows));
  const uint32_t across = uint32_t(divideCeil(shape.columns, tileColumnsOf(shape, shape.columns)));
  kernel.grid = {down, across, 1};
  if (shape.isTiled())
    kernel.grid = {down * across, 1, 1}; // blocks that share rows of x have consecutive numbers
  if (isPersistent(shape))
    kernel.grid[0] = uint32_t(shape.blocks);
  const int64_t matrices = shape.experts * shape.inner * shape.columns;
  kernel.bytes = {uint64_t((shape.rows * shape.inner + matrices) * bytes + 4 * (shape.experts + 1)),
                  uint64_t(shape.rows * shape.columns * bytes)};
  return kernel;
}

CudaKernel lmc::codegen::expertGemmGradKernel(const ExpertGemmShape &of) {
  ExpertGemmShape shape = of;
  shape.blocks = 0;
  const int64_t tile = tileOf(shape), bytes = elementBytes(shape.type);
  const std::string name =
      formatv("expert_gemm_grad_{0}x{1}_{2}x{3}{4}_{5}", shape.rows, shape.inner, shape.experts,
              shape.columns, shape.accumulate ? "_acc" : "", shortName(shape.type));
  const std::string comment = formatv(
      "d_e {0}= the sum of dy[r, :]^T x[r, :] over the rows r of each expert e; dy {1} [{2}, "
      "{3}], x [{2}, {4}], d {5} [{6}, {3}, {4}].",
      shape.accumulate ? "+" : "", shortName(shape.type), shape.rows, shape.columns, shape.inner,
      shortName(shape.sumType()), shape.experts);
  CudaKernel kernel = expertKernelOf(
      shape, shape.inner, name, "expert_gemm_grad", comment, "expertGemmGrad",
      "const {0} *dy, const {0} *x, const lmc::i32 *offsets, {1} *d", "dy, x, offsets, d");
  kernel.grid = {uint32_t(divideCeil(shape.columns, tile)),
                 uint32_t(divideCeil(shape.inner, tileColumnsOf(shape, shape.inner))),
                 uint32_t(shape.experts)};
  const uint64_t matrices =
      uint64_t(shape.experts * shape.inner * shape.columns * elementBytes(shape.sumType()));
  kernel.bytes = {
      uint64_t(shape.rows * (shape.inner + shape.columns) * bytes + 4 * (shape.experts + 1)) +
          (shape.accumulate ? matrices : 0),
      matrices};
  return kernel;
}
