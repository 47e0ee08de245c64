#include "compiler/targets/cuda/templates/TokenSort.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace lmc::codegen;

// The minimum and maximum of bits per digit of the radix sort. Beyond 2^10 digit values, the
// counters of a thread block's 8 warps exceed the 48 KiB of shared memory that every GPU gives a
// block.
static constexpr int64_t kMaxDigitBits = 10, kFewestDigitBits = 5;
static constexpr int64_t kMaxItems = 16; // positions per thread, limited by registers

TokenSortTiles lmc::codegen::tokenSortTiles(int64_t rows, int64_t largest) {
  TokenSortTiles sort;
  int64_t keyBits = llvm::Log2_64(uint64_t(std::max<int64_t>(largest, 1))) + 1;
  sort.passes = llvm::divideCeil(keyBits, kMaxDigitBits);
  sort.digitBits = std::max<int64_t>(kFewestDigitBits, llvm::divideCeil(keyBits, sort.passes));
  // Every tile reads the digit counts of all tiles, so there should be few tiles: 32 or so keep
  // this cost small and still occupy enough of the GPU.
  int64_t items = 1;
  while (items < kMaxItems && rows > 32 * sort.threads * items)
    items *= 2;
  sort.tile = sort.threads * items;
  sort.tiles = llvm::divideCeil(rows, sort.tile);
  return sort;
}
