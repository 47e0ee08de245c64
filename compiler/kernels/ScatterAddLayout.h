// How a CUDA device adds rows by id (kern.scatter_add): the sizes of the sort and of the
// sums, and where they keep what in their workspace.
//
// Tokens are sorted by id, stably, by least-significant-digit radix passes. A pass is two
// kernels over the same tiles of positions: the first counts each tile's digits, the second
// finds every tile's first place for each digit and moves the tile's pairs there. Then every
// `range` sorted positions, and a stretch of columns, are summed by one warp, run of equal ids
// by run; of a run that began in an earlier range, the sum goes to a row of `partials`
// instead, and a last kernel adds those rows to the result in ascending order.
// (compiler/targets/cuda/device/scatter_add.cuh)
#pragma once

#include <cstdint>

namespace lmc::codegen {

struct ScatterAddLayout {
  int64_t threads = 256; // of a block of the sort
  int64_t tile = 0;      // positions that a block of the sort takes: a multiple of `threads`
  int64_t tiles = 0;     // blocks of the sort
  int64_t digitBits = 0; // 5 to 10
  int64_t passes = 0;    // digitBits * passes bits hold `vocabulary`, which ids of no row get
  int64_t range = 64;    // sorted positions that a warp sums
  int64_t ranges = 0;
  // Offsets in bytes, multiples of 64. Pass p writes (keys, tokens)[p % 2], u32 [rows] each.
  int64_t keys[2] = {0, 0}, tokens[2] = {0, 0};
  int64_t counts = 0;   // u32 [tiles, 2^digitBits]
  int64_t partials = 0; // f32 or f64 [ranges, columns]; row 0 is not used
  int64_t bytes = 0;    // of the whole workspace
};

// For ids i32 [rows] into [vocabulary, columns]; sums have `sumBytes` bytes, 4 or 8.
// `rows` and `columns` are positive, all below 2^31.
ScatterAddLayout scatterAddLayout(int64_t rows, int64_t columns, int64_t vocabulary,
                                  int64_t sumBytes);

inline int64_t scatterAddWorkspaceBytes(int64_t rows, int64_t columns, int64_t vocabulary,
                                        int64_t sumBytes) {
  return scatterAddLayout(rows, columns, vocabulary, sumBytes).bytes;
}

} // namespace lmc::codegen
