// Computes the products of a group with the packed kernels. Each thread packs the operands of the
// block (GemmBlock) that it computes, into memory of its own.
#include "runtime/device/cpu/gemm/Groups.h"
#include "runtime/device/cpu/gemm/Implementations.h"

#include <fmt/format.h>

namespace lmc::cpu {
namespace {

class PackedGroup final : public GemmGroup {
public:
  PackedGroup(const KernelSet &set, const GemmGroupShape &group, int threads,
              PackedBuffers &buffers)
      : setName(set.name), shape(group.shape), input(set.gemm[int(shape.input)]),
        output(set.gemm[int(shape.output)]), threads(threads), buffers(buffers),
        // The kernels keep no sums in bf16. If d is bf16, the sums are first written to a buffer.
        direct(shape.output != Storage::BF16), sizes{kTall, direct ? kWide : kWide / 2,
                                                     input.panelRows},
        blocks(group, threads, sizes) {
    const auto packed = int64_t(input.packedWidth);
    bytesB = kPackedDepth * sizes.columns * packed;
    bytesA = kPackedRows * kPackedDepth * packed + 64;
    threadBytes =
        bytesB + bytesA + (direct ? 0 : kTall * sizes.columns * int64_t(input.arithmeticWidth));
    buffers.perThread.reserve(threadBytes * threads);
  }

  void run(const std::vector<GemmPart> &parts) override {
    bytesD = 0;
    for (const GemmPart &part : parts)
      bytesD += part.m * shape.n * elementBytes(shape.output);
    forBlocks(shape, blocks.divide(parts), threads,
              [this](const GemmBlock &block, const GemmBlock *next) { multiply(block, next); });
  }

  std::string implementation() const override { return fmt::format("packed {}", setName); }

private:
  // Returns true if `block` of d may be written with Sums::Stream: one kernel call completes each
  // sum, the results of all parts exceed the caches, and each row of d is whole cache lines.
  bool streams(const GemmBlock &block) const {
    constexpr int64_t kLine = 64;
    const int64_t row = shape.n * int64_t(input.arithmeticWidth);
    return direct && block.part->k <= kPackedDepth && bytesD >= kStreamedBytes &&
           row % kLine == 0 && reinterpret_cast<uintptr_t>(block.part->d) % kLine == 0;
  }

  // Returns the part of b that `block` needs next, from index `first` of dimension k on. The kernel
  // fetches this part into the second-level cache while it computes `tiles` tiles.
  Prefetch ahead(const GemmBlock &block, int64_t first, int64_t tiles) const {
    const int64_t k = block.part->k, depth = std::min(kPackedDepth, k - first);
    const int64_t width = elementBytes(shape.input), leading = shape.transposeB ? k : shape.n;
    const int64_t row = shape.transposeB ? block.column : first;
    const int64_t column = shape.transposeB ? first : block.column;
    Prefetch prefetch;
    prefetch.at = static_cast<const char *>(block.part->b) + (row * leading + column) * width;
    prefetch.leading = leading * width;
    prefetch.rows = shape.transposeB ? block.columns : depth;
    prefetch.bytes = (shape.transposeB ? depth : block.columns) * width;
    prefetch.linesPerTile = prefetch.rows * ((prefetch.bytes + 63) / 64) / tiles + 1;
    return prefetch;
  }

  void multiply(const GemmBlock &block, const GemmBlock *next) {
    char *panelsB = buffers.perThread.at(omp_get_thread_num() * threadBytes);
    char *panelsA = panelsB + bytesB;
    char *to = static_cast<char *>(block.part->d) +
               (block.row * shape.n + block.column) * elementBytes(shape.output);
    char *sums = direct ? to : panelsA + bytesA;
    const int64_t leading = direct ? shape.n : block.columns, k = block.part->k;
    const int64_t tiles = ((block.rows + input.panelRows - 1) / input.panelRows) *
                          ((block.columns + input.panelColumns - 1) / input.panelColumns);
    Sums mode = direct && shape.accumulate ? Sums::Add
                : streams(block)           ? Sums::Stream
                                           : Sums::Replace;
    for (int64_t first = 0; first < k; first += kPackedDepth) {
      const int64_t depth = std::min(kPackedDepth, k - first);
      input.packB({block.part->b, shape.transposeB ? k : shape.n, shape.transposeB, first, depth,
                   block.column, block.columns},
                  panelsB);
      Prefetch prefetch;
      if (first + kPackedDepth < k)
        prefetch = ahead(block, first + kPackedDepth, tiles);
      else if (next && next->part->k > 0)
        prefetch = ahead(*next, 0, tiles);
      for (int64_t row = 0; row < block.rows; row += kPackedRows) {
        const int64_t rows = std::min(kPackedRows, block.rows - row);
        input.packA({block.part->a, shape.transposeA ? block.part->m : k, shape.transposeA,
                     block.row + row, rows, first, depth},
                    panelsA);
        input.multiply(panelsA, panelsB, rows, block.columns, depth,
                       sums + row * leading * int64_t(input.arithmeticWidth), leading, mode,
                       prefetch);
      }
      mode = Sums::Add;
    }
    if (!direct)
      output.store({sums, leading, to, shape.n, block.rows, block.columns, nullptr, shape.bias,
                    shape.accumulate});
  }

  // The maximum number of rows and of columns of a block of d. The block and its panels of b stay
  // in the second-level cache.
  static constexpr int64_t kTall = 384, kWide = 512;
  // Only results of this many bytes or more bypass the caches: most third-level caches are smaller.
  static constexpr int64_t kStreamedBytes = 32 << 20;

  const char *setName;
  GemmShape shape;
  PackedGemmKernels input, output;
  int threads;
  PackedBuffers &buffers;
  bool direct;
  BlockSizes sizes;
  GemmBlocks blocks;
  int64_t bytesB, bytesA, threadBytes;
  int64_t bytesD = 0; // bytes of the results of all parts of the current run()
};

} // namespace

std::unique_ptr<GemmGroup> makePackedGroup(const GemmGroupShape &group, int threads,
                                           PackedBuffers &buffers, const KernelSet &set) {
  return std::make_unique<PackedGroup>(set, group, threads, buffers);
}

} // namespace lmc::cpu
