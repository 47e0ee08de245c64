// The sizes by which kern.scatter_add on a CUDA device divides its work: of its sort, of its sums,
// and of the arrays in its workspace.
//
// Tokens are sorted by id, stably, by a radix sort that starts with the least significant digit.
// Each pass of the sort (one digit) consists of two kernels over the same tiles of positions. The
// first counts the digits of each tile. The second computes every tile's first position for each
// digit, and moves the tile's (key, token) pairs to their positions. Then each warp sums `range`
// sorted positions of some of the columns, one run of equal ids after the other. If a run began in
// an earlier range, its sum goes to a row of `partials` instead of the result. A last kernel adds
// these rows to the result in ascending order. The kernels are in
// compiler/targets/cuda/device/scatter_add.cuh.
#pragma once

#include "compiler/targets/cuda/templates/TokenSort.h"

#include <cstdint>

namespace lmc::codegen {

// The keys of the sort are 0..vocabulary. An id outside of the vocabulary has the key `vocabulary`.
struct ScatterAddLayout : TokenSortTiles {
  int64_t range = 64; // number of sorted positions that one warp sums
  int64_t ranges = 0;
  // Offsets of arrays in the workspace, in bytes, multiples of 64. Pass p writes keys[p % 2] and
  // tokens[p % 2], each u32 [rows].
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
