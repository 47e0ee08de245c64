// The products of a group by the packed kernels. A thread packs both operands of a block in memory
// of its own.
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
        // Sums go directly into d if d has the type in which the kernels add; only bf16 has not.
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
    forBlocks(shape, blocks.divide(parts), threads,
              [this](const GemmBlock &block) { multiply(block); });
  }

  std::string implementation() const override { return fmt::format("packed {}", setName); }

private:
  void multiply(const GemmBlock &block) {
    char *panelsB = buffers.perThread.at(omp_get_thread_num() * threadBytes);
    char *panelsA = panelsB + bytesB;
    char *to = static_cast<char *>(block.part->d) +
               (block.row * shape.n + block.column) * elementBytes(shape.output);
    char *sums = direct ? to : panelsA + bytesA;
    const int64_t leading = direct ? shape.n : block.columns, k = block.part->k;
    bool add = direct && shape.accumulate;
    for (int64_t first = 0; first < k; first += kPackedDepth) {
      const int64_t depth = std::min(kPackedDepth, k - first);
      input.packB({block.part->b, shape.transposeB ? k : shape.n, shape.transposeB, first, depth,
                   block.column, block.columns},
                  panelsB);
      for (int64_t row = 0; row < block.rows; row += kPackedRows) {
        const int64_t rows = std::min(kPackedRows, block.rows - row);
        input.packA({block.part->a, shape.transposeA ? block.part->m : k, shape.transposeA,
                     block.row + row, rows, first, depth},
                    panelsA);
        input.multiply(panelsA, panelsB, rows, block.columns, depth,
                       sums + row * leading * int64_t(input.arithmeticWidth), leading, add);
      }
      add = true;
    }
    if (!direct)
      output.store({sums, leading, to, shape.n, block.rows, block.columns, nullptr, shape.bias,
                    shape.accumulate});
  }

  // The largest block. Its part of d, or of the sums, and its panels of b stay in the second-level
  // cache.
  static constexpr int64_t kTall = 384, kWide = 512;

  const char *setName;
  GemmShape shape;
  PackedGemmKernels input, output;
  int threads;
  PackedBuffers &buffers;
  bool direct;
  BlockSizes sizes;
  GemmBlocks blocks;
  int64_t bytesB, bytesA, threadBytes;
};

} // namespace

std::unique_ptr<GemmGroup> makePackedGroup(const GemmGroupShape &group, int threads,
                                           PackedBuffers &buffers, const KernelSet &set) {
  return std::make_unique<PackedGroup>(set, group, threads, buffers);
}

} // namespace lmc::cpu
