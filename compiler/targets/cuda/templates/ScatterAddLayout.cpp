#include "compiler/targets/cuda/templates/ScatterAddLayout.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace lmc::codegen;

// The maximum and minimum number of bits per digit of the radix sort. With 11 bits, the counters of
// a block's 8 warps would take 64 KiB. Some GPUs give a block only 48 KiB of shared memory.
static constexpr int64_t kMaxDigitBits = 10, kFewestDigitBits = 5;
static constexpr int64_t kMaxItems = 16; // positions per thread, limited by registers

TokenSortTiles lmc::codegen::tokenSortTiles(int64_t rows, int64_t largest) {
  TokenSortTiles sort;
  int64_t keyBits = llvm::Log2_64(uint64_t(std::max<int64_t>(largest, 1))) + 1;
  sort.passes = llvm::divideCeil(keyBits, kMaxDigitBits);
  sort.digitBits = std::max<int64_t>(kFewestDigitBits, llvm::divideCeil(keyBits, sort.passes));
  // Every tile reads the digit counts of all tiles. With about 32 tiles, these reads are cheap.
  int64_t items = 1;
  while (items < kMaxItems && rows > 32 * sort.threads * items)
    items *= 2;
  sort.tile = sort.threads * items;
  sort.tiles = llvm::divideCeil(rows, sort.tile);
  return sort;
}

ScatterAddLayout lmc::codegen::scatterAddLayout(int64_t rows, int64_t columns, int64_t vocabulary,
                                                int64_t sumBytes) {
  ScatterAddLayout layout{tokenSortTiles(rows, vocabulary)};
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
  layout.counts = place(layout.countBytes());
  layout.partials = place(layout.ranges * columns * sumBytes);
  return layout;
}
