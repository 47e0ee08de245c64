// The sizes by which the radix sort TokenSort (compiler/targets/cuda/device/scatter_add.cuh)
// divides its work.
#pragma once

#include <cstdint>

namespace lmc::codegen {

struct TokenSortTiles {
  static constexpr int64_t threads = 256; // threads per thread block
  int64_t tile = 0;                       // positions per thread block, a multiple of `threads`
  int64_t tiles = 0;                      // number of thread blocks
  int64_t digitBits = 0;                  // bits per digit, 5 to 10
  int64_t passes = 0; // number of passes; passes * digitBits bits can hold every key

  // The bytes of the digit counts, u32 [tiles, 2^digitBits].
  int64_t countBytes() const { return tiles << (digitBits + 2); }
};

// Returns the sizes for `rows` keys from 0 to `largest`. Both are below 2^31.
TokenSortTiles tokenSortTiles(int64_t rows, int64_t largest);

} // namespace lmc::codegen
