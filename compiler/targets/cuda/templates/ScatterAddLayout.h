// Describes how kern.scatter_add divides its work on a CUDA device: the sizes of the sort, the sums
// and the workspace. The kernels are in compiler/targets/cuda/device/scatter_add.cuh.
//
// A stable radix sort orders the tokens by id, least significant digit first. Each pass sorts by
// one digit with two kernels: the first counts the digits in each tile of positions, the second
// moves the (key, token) pairs. Then each warp takes `range` sorted positions and some columns, and
// adds up the rows of each run of equal ids. If a run began in an earlier range, its sum goes to a
// row of `partials`. A last kernel adds these rows to the result in ascending order.
#pragma once

#include <cstdint>

namespace lmc::codegen {

// The sizes of the radix sort TokenSort in scatter_add.cuh.
struct TokenSortTiles {
  static constexpr int64_t threads = 256; // threads per thread block
  int64_t tile = 0;                       // positions per thread block, a multiple of `threads`
  int64_t tiles = 0;                      // number of thread blocks
  int64_t digitBits = 0;                  // bits per digit, 5 to 10
  int64_t passes = 0; // number of passes; passes * digitBits bits can hold every key

  // Returns the size in bytes of the digit counts, u32 [tiles, 2^digitBits].
  int64_t countBytes() const { return tiles << (digitBits + 2); }
};

// Returns the sizes for `rows` keys in 0..`largest`. `rows` and `largest` must be below 2^31.
TokenSortTiles tokenSortTiles(int64_t rows, int64_t largest);

// The keys of the sort are 0..vocabulary. An id outside of the vocabulary has the key `vocabulary`.
struct ScatterAddLayout : TokenSortTiles {
  int64_t range = 64; // number of sorted positions that one warp sums
  int64_t ranges = 0;
  // Offsets of arrays in the workspace, in bytes; multiples of 64. Passes 0, 2, ... write keys[0]
  // and tokens[0], passes 1, 3, ... write keys[1] and tokens[1]. Each array is u32 [rows].
  int64_t keys[2] = {0, 0}, tokens[2] = {0, 0};
  int64_t counts = 0;   // digit counts, u32 [tiles, 2^digitBits]
  int64_t partials = 0; // partial sums, f32 or f64 [ranges, columns]; row 0 is unused
  int64_t bytes = 0;    // size of the whole workspace
};

// Returns the layout for ids i32 [rows] and a result [vocabulary, columns] whose sums have
// `sumBytes` bytes each (4 or 8). All sizes are positive and below 2^31.
ScatterAddLayout scatterAddLayout(int64_t rows, int64_t columns, int64_t vocabulary,
                                  int64_t sumBytes);

} // namespace lmc::codegen
