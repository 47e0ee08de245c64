#include "compiler/targets/cuda/ScatterAddLayout.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace lmc::codegen;

// The minimum and maximum of bits per digit of the radix sort. With more than 2^10 digit values,
// the counters of a thread block's 8 warps exceed the 48 KiB of shared memory that every device
// gives a block.
static constexpr int64_t kMaxDigitBits = 10, kFewestDigitBits = 5;
static constexpr int64_t kMaxItems = 16; // positions per thread, limited by registers

ScatterAddLayout lmc::codegen::scatterAddLayout(int64_t rows, int64_t columns, int64_t vocabulary,
                                                int64_t sumBytes) {
  ScatterAddLayout layout;
  int64_t keyBits = llvm::Log2_64(uint64_t(std::max<int64_t>(vocabulary, 1))) + 1;
  layout.passes = llvm::divideCeil(keyBits, kMaxDigitBits);
  layout.digitBits = std::max<int64_t>(kFewestDigitBits, llvm::divideCeil(keyBits, layout.passes));
  // Every tile reads the digit counts of all tiles, so there should be few tiles: about 32 keep
  // this cost small and still occupy enough of the GPU.
  int64_t items = 1;
  while (items < kMaxItems && rows > 32 * layout.threads * items)
    items *= 2;
  layout.tile = layout.threads * items;
  layout.tiles = llvm::divideCeil(rows, layout.tile);
  layout.ranges = llvm::divideCeil(rows, layout.range);

  auto place = [&](int64_t bytes) {
    int64_t offset = layout.bytes;
    layout.bytes += llvm::alignTo(bytes, 64);
    return offset;
  };
  for (int64_t buffer = 0; buffer < std::min<int64_t>(layout.passes, 2); ++buffer) {
    layout.keys[buffer] = place(rows * 4);
    layout.tokens[buffer] = place(rows * 4);
  }
  layout.counts = place(layout.tiles << (layout.digitBits + 2));
  layout.partials = place(layout.ranges * columns * sumBytes);
  return layout;
}
