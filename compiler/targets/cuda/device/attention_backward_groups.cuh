// Computes the gradients of flash attention by products of warpgroups, with the formulas and the
// two kernels of attention_backward.cuh. A warpgroup computes 64 rows of dq, or of dk and dv. Its
// products run while it computes exponentials and dS. No two warpgroups share a sum, so results do
// not depend on the order in which blocks run.
#pragma once

#include "lmc/attention_backward.cuh"
#include "lmc/attention_groups.cuh"

namespace lmc {

// A `Tile` describes the variant by constants: int queries, keys, warps (4 per 64 rows of a
// result), together (pairs of (sequence, head) at a time). If bool queryRegisters is true, a warp
// keeps its rows of q and dout in registers. If bool keyRegisters is true, its rows of k and v.
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionGradQueriesGroups {
  static constexpr int tiles = (Shape::seq + Tile::queries - 1) / Tile::queries;
  static constexpr int blocks = Shape::batch * Shape::heads * tiles;
  static constexpr int queryBytes = attention::GroupTile<Tile::queries, D>::bytes;
  static constexpr int keyBytes = attention::GroupTile<Tile::keys, D>::bytes;
  // Pairs of tiles (keys, values): one for scores, one for the previous step's sums, one to fill.
  static constexpr int stages = 3;
  // Shared memory holds tiles and, for each query, delta.
  static constexpr int sharedBytes = attention::kGroupTilesPadding + 2 * queryBytes +
                                     2 * stages * keyBytes + 4 * Tile::queries;
};
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionGradKeysGroups {
  static constexpr int tiles = (Shape::seq + Tile::keys - 1) / Tile::keys;
  static constexpr int blocks = Shape::batch * Shape::kvHeads * tiles;
  static constexpr int queryBytes = attention::GroupTile<Tile::queries, D>::bytes;
  static constexpr int keyBytes = attention::GroupTile<Tile::keys, D>::bytes;
  // With more than 128 columns, the sums of dk and dv need more registers than one warpgroup has.
  // Then two warpgroups share 64 rows: the first computes dv, the second dk.
  static constexpr bool inPairs = D > 128;
  static constexpr int stages = 2;
  // A query has words for lse, delta and, if hasFirstKey(), the first key that the query sees.
  static constexpr int rowWords = Shape::window > 0 || Shape::documents ? 3 : 2;
  static constexpr int stageBytes = 2 * queryBytes;
  static constexpr int rowBytes = rowWords * 4 * Tile::queries;
  // The probabilities (f32) that the first warpgroup of a pair passes to the second.
  static constexpr int pairBytes = inPairs ? 4 * Tile::keys * Tile::queries : 0;
  static constexpr int sharedBytes = attention::kGroupTilesPadding + 2 * keyBytes +
                                     stages * (stageBytes + rowBytes) + pairBytes;
};

// Computes dq (bf16) and delta (f32 [batch * seq, heads]). Arguments: as for attentionGradQueries.
// Grid: AttentionGradQueriesGroups::blocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionGradQueriesGroups(const bf16 *q, const bf16 *k, const bf16 *v,
                                                  const bf16 *out, const float *lse,
                                                  const bf16 *dout, const i32 *starts,
                                                  const float *cos, const float *sin, bf16 *dq,
                                                  float *delta, float *largest) {
  using namespace attention;
  using Plan = AttentionGradQueriesGroups<Shape, Tile, D>;
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
  dout += token * Shape::doutPitch + work.head * columns;
  // With Shape::largest, registers suffice only if the address is computed at the end.
  if constexpr (!Shape::largest)
    dq += token * Shape::dqPitch + work.head * columns;
  lse += token * Shape::heads + work.head;
  delta += token * Shape::heads + work.head;
  starts += Shape::documents ? token : 0;

  const u32 queries = groupTiles(), gradients = queries + Plan::queryBytes;
  const u32 stages = gradients + Plan::queryBytes;
  const u32 tiles = queries - sharedAddress(sharedMemory()); // offset of the tiles in shared memory
  const int first = work.tile * Tile::queries;
  const int last = lesser(first + Tile::queries, seq) - 1;
  const int firstTile = uniform(firstKeyOf<Shape>(starts, first)) / Tile::keys;
  const int endTile = last / Tile::keys + 1;

  auto fetch = [&](int tile, u32 keys) {
    if (tile < endTile) {
      Keys::template copy<columns, threads, Shape::kPitch, seq>(keys, k, tile);
      Keys::template copy<columns, threads, Shape::vPitch, seq>(keys + Plan::keyBytes, v, tile);
    }
    copyAsyncCommit();
  };
  int step = firstTile, stage = 0;
  // Waits for this step's tiles. Then starts to copy the next tiles into the oldest buffers.
  auto advance = [&] {
    copyAsyncWait<0>();
    seenByProducts();
    barrierOf<threads>(1);
    const u32 keys = stages + stage * (2 * Plan::keyBytes);
    stage = stage == Plan::stages - 1 ? 0 : stage + 1;
    fetch(++step, stages + stage * (2 * Plan::keyBytes));
    return keys;
  };
  Queries::template copy<columns, threads, Shape::qPitch, seq>(queries, q, work.tile);
  Queries::template copy<columns, threads, Shape::doutPitch, seq>(gradients, dout, work.tile);
  fetch(firstTile, stages);

  const int lane = int(threadIdx.x) % 32, warp = uniform(int(threadIdx.x) / 32);
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

  // lse / ln 2 and delta of this thread's two rows. A row past the end of the sequence has lse =
  // infinity, so that its probabilities are zero.
  float *sums = reinterpret_cast<float *>(sharedMemory() + tiles + 2 * Plan::queryBytes +
                                          2 * Plan::stages * Plan::keyBytes) +
                16 * warp;
  sumRows<Shape, 1, D>(out, dout, delta, sums, warpFirst);
  float base[2], sumOfRow[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = 8 * half + lane / 4, i = warpFirst + row;
    base[half] = i < seq ? loadOne(lse + i64(i) * Shape::heads) * kLog2E : infinity();
    sumOfRow[half] = sums[row];
  }

  float sum[1][D / 8][4], s[1][N][4], d[1][N][4];
  u32 operand[1][N / 2][4], heldQueries[1][D / 16][4], heldGradients[1][D / 16][4];
  clear(sum);
  GroupProducts products;
  const u32 band = warp / 4 * (64 * kTileRowBytes);
  // Issues the products for a tile as two wgmma groups: first the scores, then dP.
  auto issue = [&](u32 keys) {
    products.begin();
    if constexpr (Tile::queryRegisters)
      issueScores<Tile::keys, D, Tile::queries>(products, s, heldQueries, keys);
    else
      issueScores<Tile::keys, D, Tile::queries>(products, s, queries + band, keys);
    products.commit();
    products.begin();
    if constexpr (Tile::queryRegisters)
      issueScores<Tile::keys, D, Tile::queries>(products, d, heldGradients, keys + Plan::keyBytes);
    else
      issueScores<Tile::keys, D, Tile::queries>(products, d, gradients + band,
                                                keys + Plan::keyBytes);
    products.commit();
  };
  auto issueSum = [&](u32 keys) {
    products.begin();
    issueSums<Tile::keys, D>(products, sum, operand, keys);
    products.commit();
  };
  auto probabilities = [&](int tile) {
    const int firstKey = tile * Tile::keys;
    if (firstKey + Tile::keys - 1 > warpFirst ||
        (hasFirstKey<Shape>() && firstKey < warpLowLast))
      maskRows<Shape>(s, starts, warpFirst, firstKey);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        s[0][n][e] = exp2Fast(fmaf(s[0][n][e], scaleLog2, -base[e / 2]));
  };
  auto takeGradients = [&] {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        d[0][n][e] = s[0][n][e] * (d[0][n][e] - sumOfRow[e / 2]);
    toOperand(operand, d);
  };

  while (step < begin)
    advance();
  if (begin < end) {
    u32 keys = advance();
    if constexpr (Tile::queryRegisters) {
      Queries::load(heldQueries, queries, 16 * warp);
      Queries::load(heldGradients, gradients, 16 * warp);
    }
    issue(keys);
    products.template finish<1>(elements(s));
    probabilities(begin);
    products.finish(elements(d));
    takeGradients();
    for (int tile = begin + 1; tile < end; ++tile) {
      const u32 before = keys;
      keys = advance();
      issue(keys);
      issueSum(before);
      products.template finish<2>(elements(s));
      probabilities(tile);
      products.template finish<1>(elements(d));
      products.finish(elements(sum));
      takeGradients();
    }
    issueSum(keys);
    products.finish(elements(sum));
  }
  while (step < endTile)
    advance();
  copyAsyncWait<0>();

  multiply(sum, Shape::scale);
  if constexpr (Shape::rope)
    rotateBack<Shape>(sum, cos, sin, warpFirst);
  storeLargest<Shape, /*ByKeys=*/false, Plan::tiles, Tile::together, kLargestPitch<Shape>>(
      sum, largest, 0, warpFirst);
  if constexpr (Shape::largest) {
    const Work same =
        workAgain<Shape::batch, Shape::heads, Plan::tiles, Tile::together, true>();
    dq += i64(same.batch) * seq * Shape::dqPitch + same.head * columns;
  }
  barrierOf<threads>(1);
  Queries::template store<columns, Shape::dqPitch, seq>(sharedMemory() + tiles, 16 * warp, sum, dq,
                                                        warpFirst);
}

// Computes dk and dv (bf16) from attentionGradQueriesGroups's `delta`. Grid:
// AttentionGradKeysGroups::blocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionGradKeysGroups(const bf16 *q, const bf16 *k, const bf16 *v,
                                               const float *lse, const bf16 *dout,
                                               const float *delta, const i32 *starts,
                                               const float *cos, const float *sin, bf16 *dk,
                                               bf16 *dv, float *largest) {
  using namespace attention;
  using Plan = AttentionGradKeysGroups<Shape, Tile, D>;
  using Queries = GroupTile<Tile::queries, D>;
  using Keys = GroupTile<Tile::keys, D>;
  constexpr int columns = Shape::headDim, threads = 32 * Tile::warps, seq = Shape::seq;
  constexpr int N = Tile::queries / 8, group = Shape::heads / Shape::kvHeads;
  constexpr int ofRows = Plan::inPairs ? 2 : 1; // number of warpgroups that share rows
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  static_assert(ofRows * Tile::keys == 16 * Tile::warps && Tile::keys % 64 == 0, "64 rows a group");
  static_assert(!Plan::inPairs || Tile::keys == 64, "one pair of warpgroups");
  static_assert(columns <= D && columns % 8 == 0, "whole units of 16 bytes");
  static_assert(Tile::queries <= threads, "a thread per row of lse");

  const Work work = workOf<Shape::batch, Shape::kvHeads, Plan::tiles, Tile::together, false>(
      int(blockIdx.x));
  const i64 token = i64(work.batch) * seq;
  q += token * Shape::qPitch + work.head * group * columns;
  k += token * Shape::kPitch + work.head * columns;
  v += token * Shape::vPitch + work.head * columns;
  dout += token * Shape::doutPitch + work.head * group * columns;
  dk += token * Shape::dkPitch + work.head * columns;
  dv += token * Shape::dvPitch + work.head * columns;
  lse += token * Shape::heads + work.head * group;
  delta += token * Shape::heads + work.head * group;
  starts += Shape::documents ? token : 0;

  const u32 keys = groupTiles(), values = keys + Plan::keyBytes;
  const u32 stages = values + Plan::keyBytes;
  u8 *const tiles = sharedMemory() + (keys - sharedAddress(sharedMemory()));
  const int first = work.tile * Tile::keys;
  const int last = lesser(first + Tile::keys, seq) - 1;
  const int firstTile = first / Tile::queries;
  const int endTile = ceilDiv(uniform(endOfQueries<Shape>(starts, last)), Tile::queries);
  // The steps go through the query heads that share the key head, one head after the other.
  const int steps = group * (endTile - firstTile);

  auto fetch = [&](int head, int tile, int stage) {
    const u32 to = stages + stage * Plan::stageBytes;
    Queries::template copy<columns, threads, Shape::qPitch, seq>(to, q + head * columns, tile);
    Queries::template copy<columns, threads, Shape::doutPitch, seq>(to + Plan::queryBytes,
                                                                    dout + head * columns, tile);
  };
  // A query's lse / ln 2, delta, and the first key that the query sees. A row past the end of the
  // sequence has lse = infinity, so its probabilities are zero.
  struct Row {
    float lse, delta;
    int firstKey;
  };
  auto readRow = [&](int head, int tile) {
    Row row = {infinity(), 0, 0};
    int i = tile * Tile::queries + int(threadIdx.x);
    if (int(threadIdx.x) < Tile::queries) {
      if (i < seq) {
        row.lse = loadOne(lse + i64(i) * Shape::heads + head) * kLog2E;
        row.delta = loadOne(delta + i64(i) * Shape::heads + head);
      }
      if constexpr (hasFirstKey<Shape>())
        row.firstKey = firstKeyOf<Shape>(starts, lesser(i, seq - 1));
    }
    return row;
  };
  auto rowsOf = [&](int stage) {
    return reinterpret_cast<float *>(tiles + 2 * Plan::keyBytes + Plan::stages * Plan::stageBytes +
                                     stage * Plan::rowBytes);
  };
  auto writeRow = [&](Row row, int stage) {
    if (int(threadIdx.x) < Tile::queries) {
      float *rows = rowsOf(stage) + int(threadIdx.x);
      rows[0] = row.lse;
      rows[Tile::queries] = row.delta;
      if constexpr (hasFirstKey<Shape>())
        rows[2 * Tile::queries] = __int_as_float(row.firstKey);
    }
  };

  Keys::template copy<columns, threads, Shape::kPitch, seq>(keys, k, work.tile);
  Keys::template copy<columns, threads, Shape::vPitch, seq>(values, v, work.tile);
  fetch(0, firstTile, 0);
  copyAsyncCommit();
  writeRow(readRow(0, firstTile), 0);

  const int lane = int(threadIdx.x) % 32, warp = uniform(int(threadIdx.x) / 32);
  const int row = warp % (Tile::keys / 16) * 16, warpFirst = first + row; // this warp's rows
  const int groupFirst = first + row / 64 * 64, groupLast = lesser(groupFirst + 64, seq) - 1;
  const u32 band = row / 64 * (64 * kTileRowBytes);
  // The sums of dk and dv. A warpgroup of a pair computes only one of them, in `sum`.
  float sum[1][D / 8][4], valueSum[1][D / 8][4], s[1][N][4], d[1][N][4];
  u32 operand[1][N / 2][4], valueOperand[1][N / 2][4];
  u32 heldKeys[1][D / 16][4], heldValues[1][D / 16][4];
  clear(sum);
  clear(valueSum);
  GroupProducts products;
  if constexpr (Tile::keyRegisters) {
    copyAsyncWait<0>();
    barrierOf<threads>(1);
    Keys::load(heldKeys, keys, row);
    Keys::load(heldValues, values, row);
  }
  auto issueScoresOf = [&](u32 queries) {
    products.begin();
    if constexpr (Tile::keyRegisters)
      issueScores<Tile::queries, D, Tile::keys>(products, s, heldKeys, queries);
    else
      issueScores<Tile::queries, D, Tile::keys>(products, s, keys + band, queries);
    products.commit();
  };
  auto issueGradientsOf = [&](u32 gradients) {
    products.begin();
    if constexpr (Tile::keyRegisters)
      issueScores<Tile::queries, D, Tile::keys>(products, d, heldValues, gradients);
    else
      issueScores<Tile::queries, D, Tile::keys>(products, d, values + band, gradients);
    products.commit();
  };
  auto issueSum = [&](float (&to)[1][D / 8][4], const u32 (&a)[1][N / 2][4], u32 tile) {
    products.begin();
    issueSums<Tile::queries, D>(products, to, a, tile);
    products.commit();
  };
  // Turns scores into probabilities. `rows` has lse, delta and so on from query `query` on.
  auto probabilities = [&](const float *rows, int query) {
    bool masked = warpFirst + 15 > query;
    if constexpr (hasFirstKey<Shape>())
      masked = masked || __float_as_int(rows[3 * Tile::queries - 1]) > warpFirst;
    if (masked)
      maskColumns<Shape, Tile::queries>(s, rows, warpFirst, query);
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float rowLse = rows[8 * n + lane % 4 * 2 + e];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          s[0][n][2 * half + e] = exp2Fast(fmaf(s[0][n][2 * half + e], scaleLog2, -rowLse));
      }
  };
  // Turns dP into dS.
  auto takeGradients = [&](const float *rows) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float rowDelta = rows[Tile::queries + 8 * n + lane % 4 * 2 + e];
#pragma unroll
        for (int half = 0; half < 2; ++half)
          d[0][n][2 * half + e] = s[0][n][2 * half + e] * (d[0][n][2 * half + e] - rowDelta);
      }
    toOperand(operand, d);
  };
  // The address where a thread of a pair's first group stores probabilities for the second group.
  float4 *const handed = reinterpret_cast<float4 *>(
                             tiles + 2 * Plan::keyBytes +
                             Plan::stages * (Plan::stageBytes + Plan::rowBytes)) +
                         int(threadIdx.x) % 128;

  int head = 0, tile = firstTile;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2, query = tile * Tile::queries;
    if (++tile == endTile) {
      tile = firstTile;
      ++head;
    }
    copyAsyncWait<0>();
    seenByProducts();
    barrierOf<threads>(1);
    Row next;
    if (step + 1 < steps) {
      fetch(head, tile, 1 - stage);
      next = readRow(head, tile);
    }
    copyAsyncCommit();

    const u32 queries = stages + stage * Plan::stageBytes;
    const u32 gradients = queries + Plan::queryBytes;
    const float *rows = rowsOf(stage);
    // All warps of a group compute the same value of `seen`, and so do both groups of a pair.
    bool seen = groupFirst < seq && groupFirst <= lesser(query + Tile::queries, seq) - 1;
    if constexpr (hasFirstKey<Shape>())
      seen = seen && __float_as_int(rows[2 * Tile::queries]) <= groupLast;
    if (!seen) {
      if (step + 1 < steps)
        writeRow(next, 1 - stage);
      continue;
    }
    if constexpr (!Plan::inPairs) {
      issueScoresOf(queries);
      issueGradientsOf(gradients);
      if (step + 1 < steps)
        writeRow(next, 1 - stage);
      products.template finish<1>(elements(s));
      probabilities(rows, query);
      toOperand(valueOperand, s);
      issueSum(valueSum, valueOperand, gradients);
      products.template finish<1>(elements(d));
      takeGradients(rows);
      issueSum(sum, operand, queries);
      products.finish(elements(valueSum));
    } else if (warp < 4) {
      issueScoresOf(queries);
      if (step + 1 < steps)
        writeRow(next, 1 - stage);
      products.finish(elements(s));
      probabilities(rows, query);
#pragma unroll
      for (int n = 0; n < N; ++n)
        handed[128 * n] = make_float4(s[0][n][0], s[0][n][1], s[0][n][2], s[0][n][3]);
      toOperand(operand, s);
      issueSum(sum, operand, gradients);
      barrierOf<threads>(2);
    } else {
      issueGradientsOf(gradients);
      products.finish(elements(d));
      barrierOf<threads>(2);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float4 p = handed[128 * n];
        s[0][n][0] = p.x, s[0][n][1] = p.y, s[0][n][2] = p.z, s[0][n][3] = p.w;
      }
      takeGradients(rows);
      issueSum(sum, operand, queries);
    }
    products.finish(elements(sum));
  }
  copyAsyncWait<0>();
  barrierOf<threads>(1);

  auto storeLargestOf = [&](const float (&x)[1][D / 8][4], int column) {
    storeLargest<Shape, /*ByKeys=*/true, Plan::tiles, Tile::together, kLargestPitch<Shape>>(
        x, largest, column, warpFirst);
  };
  constexpr int keyColumn = Shape::heads, valueColumn = keyColumn + Shape::kvHeads;
  if (!Plan::inPairs || warp >= 4) {
    multiply(sum, Shape::scale);
    if constexpr (Shape::rope)
      rotateBack<Shape>(sum, cos, sin, warpFirst);
    storeLargestOf(sum, keyColumn);
    Keys::template store<columns, Shape::dkPitch, seq>(tiles, row, sum, dk, warpFirst);
  } else {
    storeLargestOf(sum, valueColumn);
    Keys::template store<columns, Shape::dvPitch, seq>(tiles + Plan::keyBytes, row, sum, dv,
                                                       warpFirst);
  }
  if constexpr (!Plan::inPairs) {
    storeLargestOf(valueSum, valueColumn);
    Keys::template store<columns, Shape::dvPitch, seq>(tiles + Plan::keyBytes, row, valueSum, dv,
                                                       warpFirst);
  }
}

} // namespace lmc
