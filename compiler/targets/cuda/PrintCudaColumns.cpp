// Prints kernels with the hero column_reduction. A thread block computes a tile of columns: `lanes`
// vectors side by side. It has `groups` groups of `lanes` threads. Group g adds up the rows g, g +
// groups, g + 2 groups, ... The sums of the groups are then added in shared memory, in a fixed
// order; group 0 stores the result.
#include "compiler/targets/cuda/CudaEmitter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

constexpr int64_t kColumnThreads = 512;
constexpr int64_t kColumnBytesInFlight = 128; // bytes that a thread should load at a time
constexpr int64_t kMaxRows = 8;         // rows that a thread loads at a time
// To get kWantedBlocks thread blocks, a tile may become as narrow as 64 bytes (two sectors).
constexpr int64_t kTileBytes = 64, kWantedBlocks = 128;

class ColumnPrinter : CudaEmitter {
public:
  using CudaEmitter::CudaEmitter;

  CudaKernel print() {
    findTile();
    outerDims = {"row"};
    outerPerChunk = true;
    CudaText body;
    body.line("const u32 group = threadIdx.x / " + Twine(lanes) + ";");
    body.line("const u32 c = (blockIdx.x * " + Twine(lanes) + " + threadIdx.x % " + Twine(lanes) +
              ")" + (width == 1 ? Twine() : " * " + Twine(width)) + ";");
    if (columns % (lanes * width))
      body.line("const bool inside = c < " + Twine(columns) + ";");
    for (const Reduction &r : info.reductions) {
      body.line(vectorType(typeOf(r)) + " " + sumOf(r) + ";");
      loopOverElements(body, {{elementOf(sumOf(r)) + " = " + identityOf(r) + ";"}});
    }
    printRows(body);
    printTotals(body);
    int64_t widest = 0;
    for (const Reduction &r : info.reductions)
      widest = std::max<int64_t>(widest, typeOf(r).getIntOrFloatBitWidth() / 8);
    int64_t threads = groups * lanes, shared = groups > 1 ? threads * width * widest : 0;
    int64_t blocks = llvm::divideCeil(columns, lanes * width);
    std::string note = "A block takes " + std::to_string(lanes * width) + " columns, a thread " +
                       std::to_string(width) + " of them in every " + std::to_string(groups) +
                       "-th row, " + std::to_string(rowsAtOnce) + " rows under way.";
    return finish(uint32_t(blocks), uint32_t(threads), uint32_t(shared), body, note);
  }

private:
  void findTile() {
    rows = info.shape.domain[0];
    columns = info.shape.domain[1];
    int64_t vectors = columns / width, bytes = 0, widest = 1;
    for (const Access &access : info.accesses)
      if (isInnermost(access.point) && coversDomain(access.point)) {
        int64_t element = typeOf(access.input).getElementTypeBitWidth() / 8;
        widest = std::max(widest, element);
        bytes += element * width;
      }
    lanes = std::min<int64_t>(32, llvm::bit_ceil(uint64_t(vectors)));
    while (lanes * width * widest > kTileBytes && llvm::divideCeil(vectors, lanes) < kWantedBlocks)
      lanes /= 2;
    groups = std::min<int64_t>(kColumnThreads / lanes, llvm::bit_ceil(uint64_t(rows)));
    groups = std::max<int64_t>(groups, 32 / lanes);
    rowsAtOnce = bytes ? llvm::bit_floor(uint64_t(kColumnBytesInFlight / bytes)) : 1;
    rowsAtOnce = std::clamp<int64_t>(rowsAtOnce, 1, kMaxRows);
    rowsAtOnce =
        std::min<int64_t>(rowsAtOnce, llvm::bit_ceil(uint64_t(llvm::divideCeil(rows, groups))));
  }

  void printRows(CudaText &body) {
    bool wholeTiles = columns % (lanes * width) == 0;
    CudaChunks once, group; // vectors that all rows share; vectors of `rowsAtOnce` rows
    once.guard = wholeTiles ? "" : "inside";
    hoisted = &once;
    group.count = unsigned(rowsAtOnce);
    int64_t step = groups * rowsAtOnce;
    group.index.add("u32", "row",
                    rowsAtOnce == 1 ? Twine("first") : "first + k * " + Twine(groups));
    group.guard = rows % step == 0 ? "" : "row < " + std::to_string(rows);
    startLoads(group);
    startInner();
    CudaText elements, chunk, loop;
    innerText = &elements;
    for (const Reduction &r : info.reductions) {
      std::string sum = elementOf(sumOf(r));
      elements.line(sum + " = " + combine(r, sum, info.identity).text + ";");
    }
    loopOverElements(chunk, elements);
    printLoads(body, once);
    CudaIndex shared = shareIndex(group);
    CudaText inside;
    printLoads(inside, group);
    loopOverChunks(inside, group, chunk);
    shared.print(loop, inside, "");
    loop.append(inside);
    body.block("for (u32 first = group; first < " + Twine(rows) + (wholeTiles ? "" : " && inside") +
                   "; first += " + Twine(step) + ")",
               loop);
    hoisted = nullptr;
  }

  void printTotals(CudaText &body) {
    for (const Reduction &r : info.reductions) {
      std::string type = cudaType(typeOf(r));
      if (groups > 1)
        body.line(sumOf(r) + " = reduceGroups<" + cudaCombiner(r.combiner) + ", " + Twine(groups) +
                  ", " + Twine(lanes) + ">(" + sumOf(r) + ", reinterpret_cast<" + type +
                  " *>(sharedMemory()));");
    }
    std::string leave = groups > 1 ? "group == 0" : "";
    if (columns % (lanes * width))
      leave += leave.empty() ? "inside" : " && inside";
    CudaChunks group;
    startLoads(group);
    startInner();
    CudaText elements, chunk, all;
    innerText = &elements;
    for (const Reduction &r : info.reductions) {
      std::string sum = elementOf(sumOf(r));
      std::string total = withInit(r, sum);
      if (total != sum)
        elements.line(sum + " = " + total + ";");
      CudaValue value;
      value.expr = {sum};
      value.innermost = true;
      outerCache[{r.result, r.point}] = value;
    }
    storeOutputs(chunk, elements, llvm::to_vector(llvm::seq<unsigned>(0, info.outputs.size())));
    printLoads(all, group);
    all.append(chunk);
    if (leave.empty())
      body.append(all);
    else
      body.block("if (" + leave + ")", all);
  }

  std::string sumOf(const Reduction &r) const {
    return "sum" + std::to_string(&r - info.reductions.begin());
  }

  int64_t rows = 1, columns = 1, lanes = 1, groups = 1, rowsAtOnce = 1;
};

} // namespace

CudaKernel printCudaColumns(kern::KernelOp kernel, const RegionInfo &info) {
  return ColumnPrinter(kernel, info).print();
}

} // namespace lmc::codegen
