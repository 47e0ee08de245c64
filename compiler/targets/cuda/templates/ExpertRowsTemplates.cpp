#include "compiler/targets/cuda/templates/ExpertRowsTemplates.h"

#include "compiler/targets/cuda/templates/ScatterAddLayout.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::divideCeil;
using llvm::formatv;

namespace {

constexpr int64_t kRowThreads = 256, kRowWarps = 8;

TokenSortTiles sortOf(const ExpertRowsShape &shape) {
  return tokenSortTiles(shape.choices(), shape.experts);
}

// Returns the number of thread blocks that have one warp for each of `rows` rows.
int64_t blocksOf(int64_t rows) { return int64_t(divideCeil(rows, kRowWarps)); }

// Returns a kernel. In `parameters`, {0} stands for the type of rows, and {1} for that of weights.
CudaKernel rowsKernel(const ExpertRowsShape &shape, const char *hero, const std::string &comment,
                      const std::string &parameters, const std::string &call, int64_t blocks,
                      GlobalBytes bytes) {
  const TokenSortTiles layout = sortOf(shape);
  const char *type = cudaName(shape.type), *real = cudaName(shape.realType());
  CudaKernel kernel;
  kernel.hero = hero;
  kernel.name = formatv("{0}_{1}x{2}_{3}x{4}_{5}", hero, shape.tokens, shape.chosen, shape.experts,
                        shape.columns, shortName(shape.type));
  if (shape.groups > 1)
    kernel.name += formatv("_of{0}_from{1}", shape.groups, shape.first);
  if (shape.rows() != shape.choices())
    kernel.name += formatv("_rows{0}", shape.rows());
  kernel.source = formatv(
      "// {0}\n#include \"lmc/expert_rows.cuh\"\n\n"
      "struct Shape {{\n"
      "  static constexpr int tokens = {1}, chosen = {2}, experts = {3}, columns = {4};\n"
      "  static constexpr int groups = {11}, first = {12}, held = {13};\n"
      "  static constexpr int tile = {5}, digitBits = {6};\n"
      "};\n\n"
      "extern \"C\" __global__ void __launch_bounds__({7}) {8}({9}) {{\n  {10};\n}\n",
      comment, shape.tokens, shape.chosen, shape.experts, shape.columns, layout.tile,
      layout.digitBits, kRowThreads, kernel.name, formatv(parameters.c_str(), type, real).str(),
      call, shape.groups, shape.first, shape.rows());
  kernel.bytes = bytes;
  kernel.grid = {uint32_t(blocks), 1, 1};
  kernel.threads = uint32_t(kRowThreads);
  kernel.contract = true;
  return kernel;
}

uint64_t rowBytes(const ExpertRowsShape &shape, int64_t rows) {
  return uint64_t(rows * shape.columns * elementBytes(shape.type));
}
uint64_t weightBytes(const ExpertRowsShape &shape) {
  return uint64_t(shape.choices() * elementBytes(shape.realType()));
}

} // namespace

int64_t ExpertRowsShape::sortBytes() const {
  return int64_t(llvm::alignTo(sortOf(*this).countBytes(), 64));
}

std::vector<CudaKernel> lmc::codegen::sortRowsKernels(const ExpertRowsShape &shape) {
  const TokenSortTiles layout = sortOf(shape);
  const uint64_t choices = uint64_t(shape.choices()) * 4;
  const uint64_t counts = uint64_t(layout.countBytes());
  const bool parts = shape.groups > 1;
  const uint64_t rank = parts ? uint64_t(elementBytes(shape.realType())) : 0;
  const std::string ranked = parts ? "const {1} *rank, " : "";
  const char *own = parts ? "rank" : "static_cast<const float *>(nullptr)";
  const auto counters = uint32_t(kRowWarps << (layout.digitBits + 2));
  CudaKernel count = rowsKernel(
      shape, "expert_count",
      formatv("counts[tile, e] = how many of {0} choices of a tile are of expert e.", layout.tile),
      "const lmc::i32 *experts, " + ranked + "lmc::u8 *workspace",
      formatv("lmc::ExpertRows<Shape>::count(experts, {0}, reinterpret_cast<lmc::u32 "
              "*>(workspace))",
              own),
      layout.tiles, {choices + rank, counts});
  count.sharedBytes = counters;
  CudaKernel sort = rowsKernel(
      shape, "expert_sort",
      formatv("The rows of {0} choices, sorted by expert, stably.", shape.choices()),
      "const lmc::i32 *experts, " + ranked +
          "const lmc::u8 *workspace, lmc::i32 *offsets, lmc::i32 *rows, lmc::i32 *places",
      formatv("lmc::ExpertRows<Shape>::sort(experts, {0}, reinterpret_cast<const lmc::u32 "
              "*>(workspace), offsets, rows, places)",
              own),
      layout.tiles,
      {choices + rank + counts,
       choices + uint64_t(shape.rows()) * 4 + uint64_t(shape.experts + 1) * 4});
  sort.sharedBytes = counters + uint32_t(kRowWarps) * 4;
  return {std::move(count), std::move(sort)};
}

CudaKernel lmc::codegen::takeRowsKernel(const ExpertRowsShape &shape) {
  return rowsKernel(
      shape, "take_rows", "y[r, :] = x[token of row r, :]",
      "const {0} *x, const lmc::i32 *rows, {0} *y", "lmc::takeRows<Shape>(x, rows, y)",
      blocksOf(shape.rows()),
      {rowBytes(shape, shape.tokens) + uint64_t(shape.rows()) * 4, rowBytes(shape, shape.rows())});
}

CudaKernel lmc::codegen::takeRowsGradKernel(const ExpertRowsShape &shape) {
  return rowsKernel(shape, "take_rows_grad", "dx[t, :] = the sum of t's rows of dy",
                    "const {0} *dy, const lmc::i32 *places, {0} *dx",
                    "lmc::combineRows<Shape, false>(dy, nullptr, places, dx)",
                    blocksOf(shape.tokens),
                    {rowBytes(shape, shape.rows()) + uint64_t(shape.choices()) * 4,
                     rowBytes(shape, shape.tokens)});
}

CudaKernel lmc::codegen::combineRowsKernel(const ExpertRowsShape &shape) {
  return rowsKernel(
      shape, "combine_rows", "out[t, :] = the sum of weights[t, j] y[places[t, j], :]",
      "const {0} *y, const {1} *weights, const lmc::i32 *places, {0} *out",
      "lmc::combineRows<Shape, true>(y, weights, places, out)", blocksOf(shape.tokens),
      {rowBytes(shape, shape.rows()) + uint64_t(shape.choices()) * 4 + weightBytes(shape),
       rowBytes(shape, shape.tokens)});
}

CudaKernel lmc::codegen::combineRowsGradKernel(const ExpertRowsShape &shape) {
  return rowsKernel(
      shape, "combine_rows_grad",
      "dy[r, :] = weights[c] dout[t, :], dweights[c] = dout[t, :] . y[r, :]",
      "const {0} *dout, const {0} *y, const {1} *weights, const lmc::i32 *rows, const lmc::i32 "
      "*places, {0} *dy, {1} *dweights",
      "lmc::combineRowsGrad<Shape>(dout, y, weights, rows, places, dy, dweights)",
      blocksOf(shape.rows()),
      {rowBytes(shape, shape.tokens) + rowBytes(shape, shape.rows()) +
           uint64_t(shape.rows() + shape.choices()) * 4 + weightBytes(shape),
       rowBytes(shape, shape.rows()) + weightBytes(shape)});
}

CudaKernel lmc::codegen::expertSwigluKernel(const ExpertRowsShape &shape) {
  return rowsKernel(shape, "expert_swiglu",
                    formatv("y[r, :] = silu(x[r, :{0}]) * x[r, {0}:] for r < offsets[{1}]",
                            shape.columns, shape.experts),
                    "const {0} *x, const lmc::i32 *offsets, {0} *y",
                    "lmc::expertSwiglu<Shape>(x, offsets, y)", blocksOf(shape.tokens),
                    {2 * rowBytes(shape, shape.tokens) + 4, rowBytes(shape, shape.tokens)});
}

CudaKernel lmc::codegen::expertSwigluGradKernel(const ExpertRowsShape &shape) {
  return rowsKernel(shape, "expert_swiglu_grad",
                    formatv("dx of y[r, :] = silu(x[r, :{0}]) * x[r, {0}:] for r < offsets[{1}]",
                            shape.columns, shape.experts),
                    "const {0} *dy, const {0} *x, const lmc::i32 *offsets, {0} *dx",
                    "lmc::expertSwigluGrad<Shape>(dy, x, offsets, dx)", blocksOf(shape.tokens),
                    {3 * rowBytes(shape, shape.tokens) + 4, 2 * rowBytes(shape, shape.tokens)});
}
