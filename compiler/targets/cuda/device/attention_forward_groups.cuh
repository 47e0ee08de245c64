// Computes the forward pass of flash attention by products of warpgroups, with the formulas of
// attention_forward.cuh. As in FlashAttention-3 (Shah et al., arXiv:2407.08608, section 3.2), two
// products run while the exponentials are computed: the scores of a tile, and the output of the
// previous tile.
//
// A thread block computes `Tile::queries` queries of one head, each warpgroup 64 of them. Step i
// needs the keys of tile i and the values of tile i - 1. Shared memory holds these two tiles and
// those of the next step. A warpgroup skips a tile of which its queries see no key.
#pragma once

#include "lmc/attention_forward.cuh"
#include "lmc/attention_groups.cuh"

namespace lmc {

// A `Tile` describes the variant by constants: int queries (64 per warpgroup), keys, warps,
// together (pairs of (sequence, head) at a time), bool queryRegisters (q is in registers).
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionForwardGroups {
  static constexpr int tiles = (Shape::seq + Tile::queries - 1) / Tile::queries;
  static constexpr int blocks = Shape::batch * Shape::heads * tiles;
  static constexpr int queryBytes = attention::GroupTile<Tile::queries, D>::bytes;
  static constexpr int keyBytes = attention::GroupTile<Tile::keys, D>::bytes;
  static constexpr int sharedBytes =
      attention::kGroupTilesPadding + queryBytes + 2 * 2 * keyBytes;
};

// Computes out and lse from q, k and v, as attentionForward does. Grid:
// AttentionForwardGroups::blocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionForwardGroups(const bf16 *q, const bf16 *k, const bf16 *v,
                                              const i32 *starts, bf16 *out, float *lse,
                                              float *largest) {
  using namespace attention;
  using Plan = AttentionForwardGroups<Shape, Tile, D>;
  using Queries = GroupTile<Tile::queries, D>;
  using Keys = GroupTile<Tile::keys, D>;
  constexpr int columns = Shape::headDim, threads = 32 * Tile::warps, seq = Shape::seq;
  constexpr int N = Tile::keys / 8;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  static_assert(Tile::queries == 16 * Tile::warps && Tile::warps % 4 == 0, "64 rows a warpgroup");
  static_assert(columns <= D && columns % 8 == 0, "whole units of 16 bytes");

  const Work work = workOf<Shape::batch, Shape::heads, Plan::tiles, Tile::together, true>(
      int(blockIdx.x));
  const i64 token = i64(work.batch) * seq;
  const int kvHead = work.head / (Shape::heads / Shape::kvHeads);
  q += token * Shape::qPitch + work.head * columns;
  k += token * Shape::kPitch + kvHead * columns;
  v += token * Shape::vPitch + kvHead * columns;
  out += token * Shape::outPitch + work.head * columns;
  lse += token * Shape::heads + work.head;
  starts += Shape::documents ? token : 0;

  const u32 queries = groupTiles(), stages = queries + Plan::queryBytes;
  const int first = work.tile * Tile::queries;
  const int last = lesser(first + Tile::queries, seq) - 1;
  const int firstTile = uniform(firstKeyOf<Shape>(starts, first)) / Tile::keys;
  const int endTile = last / Tile::keys + 1;

  auto fetch = [&](int tile, int stage) {
    const u32 keys = stages + stage * (2 * Plan::keyBytes);
    if (tile < endTile)
      Keys::template copy<columns, threads, Shape::kPitch, seq>(keys, k, tile);
    if (tile > firstTile && tile <= endTile)
      Keys::template copy<columns, threads, Shape::vPitch, seq>(keys + Plan::keyBytes, v, tile - 1);
    copyAsyncCommit();
  };
  int step = firstTile;
  // Waits for this step's tiles. Then starts the next copy, into the buffers of the previous step.
  auto advance = [&] {
    copyAsyncWait<0>();
    seenByProducts();
    barrierOf<threads>(1);
    const int stage = (step - firstTile) % 2;
    fetch(step + 1, 1 - stage);
    ++step;
    return stages + stage * (2 * Plan::keyBytes);
  };
  Queries::template copy<columns, threads, Shape::qPitch, seq>(queries, q, work.tile);
  fetch(firstTile, 0);

  const int warp = uniform(int(threadIdx.x) / 32);
  const int warpFirst = first + warp * 16, groupFirst = first + warp / 4 * 64;
  // The first key that the warpgroup's first row sees, and the first that the warp's last row sees.
  int groupLow = 0, warpLowLast = 0;
  if constexpr (hasFirstKey<Shape>()) {
    groupLow = uniform(firstKeyOf<Shape>(starts, lesser(groupFirst, seq - 1)));
    warpLowLast = uniform(firstKeyOf<Shape>(starts, lesser(warpFirst + 16, seq) - 1));
  }
  // The tiles [begin, end) contain keys that the group's queries see.
  const int begin = groupLow / Tile::keys;
  const int end = groupFirst < seq ? (lesser(groupFirst + 64, seq) - 1) / Tile::keys + 1 : begin;

  float o[1][D / 8][4], s[1][N][4];
  u32 p[1][N / 2][4], held[1][D / 16][4];
  clear(o);
  Softmax<1> softmax;
  softmax.start();
  GroupProducts products;
  const u32 band = queries + warp / 4 * (64 * kTileRowBytes);
  auto issue = [&](u32 keys) {
    if constexpr (Tile::queryRegisters)
      issueScores<Tile::keys, D, Tile::queries>(products, s, held, keys);
    else
      issueScores<Tile::keys, D, Tile::queries>(products, s, band, keys);
  };
  // Turns the scores of a tile into probabilities. Returns true if the output must be rescaled.
  auto take = [&](int tile) {
    const int firstKey = tile * Tile::keys;
    if (firstKey + Tile::keys - 1 > warpFirst ||
        (hasFirstKey<Shape>() && firstKey < warpLowLast))
      maskRows<Shape>(s, starts, warpFirst, firstKey);
    const bool grown = softmax.grow(s, scaleLog2);
    softmax.exponentials(s, scaleLog2);
    return grown;
  };

  while (step < begin)
    advance();
  if (begin < end) {
    u32 keys = advance();
    if constexpr (Tile::queryRegisters)
      Queries::load(held, queries, 16 * warp);
    products.begin();
    issue(keys);
    products.commit();
    products.finish(elements(s));
    take(begin);
    toOperand(p, s);
    for (int tile = begin + 1; tile < end; ++tile) {
      keys = advance();
      products.begin();
      issue(keys);
      products.commit();
      products.begin();
      issueSums<Tile::keys, D>(products, o, p, keys + Plan::keyBytes);
      products.commit();
      products.template finish<1>(elements(s));
      const bool grown = take(tile);
      products.finish(elements(o));
      if (grown)
        softmax.rescale(o);
      toOperand(p, s);
    }
    keys = advance();
    products.begin();
    issueSums<Tile::keys, D>(products, o, p, keys + Plan::keyBytes);
    products.commit();
    products.finish(elements(o));
  }
  while (step <= endTile)
    advance();
  copyAsyncWait<0>();

  // The rows of q are no longer needed, so the output overwrites them in shared memory.
  softmax.finish(o, lse, Shape::heads, warpFirst, seq, Shape::scale);
  storeLargest<Shape, /*ByKeys=*/false, Plan::tiles, Tile::together, Shape::heads>(o, largest, 0,
                                                                                  warpFirst);
  barrierOf<threads>(1);
  Queries::template store<columns, Shape::outPitch, seq>(
      sharedMemory() + (queries - sharedAddress(sharedMemory())), 16 * warp, o, out, warpFirst);
}

} // namespace lmc
