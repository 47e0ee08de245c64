// Prints kernels with the heroes elementwise and gather. A thread computes several vectors along
// the innermost dimension. With 256 threads, thread t of a block computes the vectors t, t + 256,
// ... It loads all of them before it stores the first, so that a result may overwrite an input.
#include "compiler/targets/cuda/CudaEmitter.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

constexpr int64_t kElementThreads = 256;
// The number of bytes that a thread should load at a time. To hide the memory latency, an H100
// needs 18 KB in flight per SM (3.35 TB/s * 0.7 us / 132 SMs). An SM's 2048 threads load 256 KB.
constexpr int64_t kElementBytesInFlight = 128;
constexpr int64_t kMaxChunks = 8;
// If a grid has fewer blocks, the SMs of the largest GPUs (CudaArch.cpp) get unequal work.
constexpr int64_t kFewBlocks = 600;

class ElementPrinter : CudaEmitter {
public:
  using CudaEmitter::CudaEmitter;

  CudaKernel print() {
    for (unsigned d = 0; d + 1 < rank(); ++d)
      outerDims.push_back(rank() == 2 ? "row" : "i" + std::to_string(d));
    outerPerChunk = true;
    vectors = llvm::product_of(info.shape.domain) / width;
    threads = std::min<int64_t>(kElementThreads, llvm::alignTo(vectors, 32));

    CudaChunks group;
    int64_t count = chunksPerThread(), perBlock = threads * count;
    int64_t blocks = llvm::divideCeil(vectors, perBlock);
    bool whole = vectors % perBlock == 0;
    group.count = count;
    std::string number = "blockIdx.x * " + std::to_string(perBlock) +
                         (count > 1 ? " + k * " + std::to_string(threads) : "") + " + threadIdx.x";
    if (vectors * width >> 31)
      number = "u64(blockIdx.x) * " + number.substr(number.find("* ") + 2);
    findIndex(group.index, number);
    CudaIndex alone = shareIndex(group);
    if (count > 1 && !whole)
      group.guard = "v < " + std::to_string(vectors);

    startLoads(group);
    startInner();
    CudaText chunk, elements;
    innerText = &elements;
    storeOutputs(chunk, elements, llvm::to_vector(llvm::seq<unsigned>(0, info.outputs.size())));
    CudaText body;
    printLoads(body, group);
    loopOverChunks(body, group, chunk);

    if (count == 1) {
      CudaText whole;
      std::string outside = "v >= " + std::to_string(vectors);
      alone.print(whole, body, vectors % perBlock ? outside : "");
      if (vectors % perBlock) {
        whole.line("if (" + outside + ")");
        whole.line("  return;");
      }
      whole.append(body);
      body = whole;
    }

    std::string note = "A thread takes " + std::to_string(count) + " x " + std::to_string(width) +
                       " elements" + (info.shape.flat ? "." : " along the last dimension.");
    return finish(uint32_t(blocks), uint32_t(threads), 0, body, note);
  }

private:
  int64_t chunksPerThread() {
    int64_t bytes = 0;
    for (const Access &access : info.accesses)
      if (isInnermost(access.point))
        bytes += width * typeOf(access.input).getElementTypeBitWidth() / 8;
    int64_t count = bytes ? llvm::bit_floor(uint64_t(kElementBytesInFlight / bytes)) : 1;
    count = std::clamp<int64_t>(count, 1, kMaxChunks);
    while (count > 1 && vectors / (threads * count) < kFewBlocks)
      count /= 2;
    return count;
  }

  // Adds the variables for the indices of the first element of vector number `number`.
  void findIndex(CudaIndex &index, const std::string &number) {
    ArrayRef<int64_t> domain = info.shape.domain;
    const char *type = vectors * width >> 31 ? "u64" : "u32";
    index.add(type, "v", number);
    if (rank() == 0)
      return;
    std::string times = width == 1 ? "" : " * " + std::to_string(width);
    if (info.shape.flat)
      return index.add(type, column, "v" + times);
    int64_t inner = domain.back() / width, below = inner;
    index.add("u32", column, "v % " + Twine(inner) + times);
    for (unsigned d = rank() - 1; d-- > 0;) {
      index.add("u32", outerDims[d],
                "v / " + Twine(below) + (d > 0 ? " % " + Twine(domain[d]) : Twine()));
      below *= domain[d];
    }
  }

  int64_t vectors = 1, threads = kElementThreads;
};

} // namespace

CudaKernel printCudaElements(kern::KernelOp kernel, const RegionInfo &info) {
  return ElementPrinter(kernel, info).print();
}

} // namespace lmc::codegen
