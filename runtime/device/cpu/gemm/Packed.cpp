// Matrix products by the packed kernels (kernels/PackedGemm.cpp).
#include "runtime/device/cpu/gemm/Implementations.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

namespace lmc::cpu {
namespace {

// The third-level cache holds kDeep x kWide packed elements of b. kWide is a multiple of every
// kernel's panelColumns.
class PackedGemm final : public Gemm {
public:
  static constexpr int64_t kRows = kPackedRows, kDepth = kPackedDepth, kDeep = 1024, kWide = 1024,
                           kTall = 2016;

  PackedGemm(const KernelSet &set, const GemmShape &shape, int threads, PackedBuffers &buffers)
      : setName(set.name), shape(shape), input(set.gemm[int(shape.input)]),
        output(set.gemm[int(shape.output)]), threads(threads), buffers(buffers) {
    // The kernels keep no sums in bf16. So if d is bf16, the sums are first written to a buffer.
    direct = shape.output != Storage::BF16;
    deepSteps = std::max<int64_t>(1, (shape.k + kDeep - 1) / kDeep);
    tall = !direct && deepSteps > 1 ? kTall : shape.m;
    // If there are fewer than 4 blocks of rows per thread, the columns are divided too.
    int64_t rowBlocks = (shape.m + kRows - 1) / kRows;
    columnsPerItem = kWide;
    while (columnsPerItem > 128 && rowBlocks * (kWide / columnsPerItem) < 4 * threads)
      columnsPerItem /= 2;
    const int64_t width = int64_t(input.arithmeticWidth), packed = int64_t(input.packedWidth);
    buffers.panelsB.reserve(std::min(roundUp(shape.k), kDeep) * kWide * packed);
    blockBytes = kRows * kDepth * packed + 64;
    threadBytes = blockBytes + (!direct && deepSteps == 1 ? kRows * columnsPerItem * width : 0);
    buffers.perThread.reserve(threadBytes * threads);
    if (!direct && deepSteps > 1)
      buffers.sums.reserve(kTall * kWide * width);
  }

  void run(const void *a, const void *b, void *d, const void *bias) override {
    for (int64_t column = 0; column < shape.n; column += kWide) {
      const int64_t columns = std::min(kWide, shape.n - column);
      for (int64_t row = 0; row < shape.m; row += tall)
        for (int64_t step = 0; step < deepSteps; ++step) {
          if (deepSteps > 1 || row == 0)
            packB(b, step * kDeep, std::min(kDeep, shape.k - step * kDeep), column, columns);
          runBlock(a, d, bias, row, std::min(tall, shape.m - row), column, columns, step);
        }
    }
  }

  std::string implementation() const override { return fmt::format("packed {}", setName); }

private:
  static int64_t roundUp(int64_t x) { return (x + 63) / 64 * 64; }

  // Packs `depth` x `columns` elements of op(b), from element (depth0, column0) on.
  void packB(const void *b, int64_t depth0, int64_t depth, int64_t column0, int64_t columns) {
    const int64_t blocks = (depth + kDepth - 1) / kDepth;
    const int64_t pieces = (columns + kPackColumns - 1) / kPackColumns;
    const int64_t paddedColumns =
        (columns + input.panelColumns - 1) / input.panelColumns * input.panelColumns;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (blocks * pieces > 1)
    for (int64_t item = 0; item < blocks * pieces; ++item) {
      const int64_t first = item / pieces * kDepth, piece = item % pieces * kPackColumns;
      const int64_t rows = std::min(kDepth, depth - first);
      PackArgs args{b,
                    shape.transposeB ? shape.k : shape.n,
                    shape.transposeB,
                    depth0 + first,
                    rows,
                    column0 + piece,
                    std::min(kPackColumns, columns - piece)};
      input.packB(args,
                  buffers.panelsB.at((first * paddedColumns + piece * packedDepth(input, rows)) *
                                     int64_t(input.packedWidth)));
    }
  }

  void runBlock(const void *a, void *d, const void *bias, int64_t row0, int64_t rows,
                int64_t column0, int64_t columns, int64_t step) {
    const int64_t width = int64_t(input.arithmeticWidth);
    const int64_t depth0 = step * kDeep, depth = std::min(kDeep, shape.k - depth0);
    const int64_t paddedColumns =
        (columns + input.panelColumns - 1) / input.panelColumns * input.panelColumns;
    const int64_t rowBlocks = (rows + kRows - 1) / kRows;
    const int64_t columnBlocks = (columns + columnsPerItem - 1) / columnsPerItem;
    const bool last = step + 1 == deepSteps;
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (rowBlocks * columnBlocks > 1)
    for (int64_t item = 0; item < rowBlocks * columnBlocks; ++item) {
      const int64_t row = item / columnBlocks * kRows;
      const int64_t column = item % columnBlocks * columnsPerItem;
      const int64_t height = std::min(kRows, rows - row);
      const int64_t wide = std::min(columnsPerItem, columns - column);
      char *own = buffers.perThread.at(omp_get_thread_num() * threadBytes);
      char *to = static_cast<char *>(d) +
                 ((row0 + row) * shape.n + column0 + column) * elementBytes(shape.output);
      char *sums;
      int64_t leading;
      if (direct) {
        sums = to;
        leading = shape.n;
      } else if (deepSteps == 1) {
        sums = own + blockBytes;
        leading = wide;
      } else {
        sums = buffers.sums.at((row * kWide + column) * width);
        leading = kWide;
      }
      bool add = step > 0 || (direct && shape.accumulate);
      Prefetch none;
      for (int64_t first = 0; first < depth; first += kDepth) {
        const int64_t deep = std::min(kDepth, depth - first);
        input.packA({a, shape.transposeA ? shape.m : shape.k, shape.transposeA, row0 + row, height,
                     depth0 + first, deep},
                    own);
        input.multiply(
            own,
            buffers.panelsB.at((first * paddedColumns + column * packedDepth(input, deep)) *
                               int64_t(input.packedWidth)),
            height, wide, deep, sums, leading, add ? Sums::Add : Sums::Replace, none);
        add = true;
      }
      if (last && (!direct || shape.hasBias)) {
        const char *biasAt = nullptr;
        if (shape.hasBias)
          biasAt = static_cast<const char *>(bias) + (column0 + column) * elementBytes(shape.bias);
        output.store({sums, leading, to, shape.n, height, wide, biasAt, shape.bias,
                      !direct && shape.accumulate});
      }
    }
  }

  static constexpr int64_t kPackColumns = 128; // a multiple of every kernel's panelColumns

  const char *setName;
  GemmShape shape;
  PackedGemmKernels input, output;
  int threads;
  PackedBuffers &buffers;
  bool direct;
  int64_t deepSteps, tall, columnsPerItem, blockBytes, threadBytes;
};

} // namespace

std::unique_ptr<Gemm> makePackedGemm(const GemmShape &shape, int threads, PackedBuffers &buffers,
                                     const KernelSet &set) {
  return std::make_unique<PackedGemm>(set, shape, threads, buffers);
}

} // namespace lmc::cpu
