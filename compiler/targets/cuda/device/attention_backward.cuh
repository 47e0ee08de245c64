// Computes the gradients of flash attention on tensor cores. The probabilities P are recomputed
// from the saved log-sum-exp (Dao, FlashAttention-2, arXiv:2307.08691, algorithm 2). With P_ij =
// exp(scale q_i.k_j - lse_i), delta_i = sum_d dout_id out_id, and * for the elementwise product:
//   dV = P^T dout    dP = dout V^T    dS = P * (dP - delta)    dQ = scale dS K    dK = scale dS^T Q
//
// There are two kernels, so that one warp adds each sum in a fixed order. Both compute S and dP,
// which makes 7 products of tiles instead of 5. attentionGradQueries also writes delta.
// attentionGradKeys computes S^T = K Q^T, so that one mma leaves P^T and dS^T in the registers from
// which the next mma reads them.
//
// If Shape::rope is true, dq and dk are rotated back before they are stored. With x = dq or dk of
// position t, d = headDim, j < d / 2, c = cos[t, j] and s = sin[t, j], the stored y is
//   y_j = x_j c + x_{j + d/2} s        y_{j + d/2} = x_{j + d/2} c - x_j s
#pragma once

#include "lmc/attention.cuh"

namespace lmc {

// A `Tile` describes the variant by constants: int queries, keys, warps, stages (buffers in shared
// memory; at least 2, and exactly 2 in attentionGradKeys), together (pairs of (sequence, head) at a
// time). A warp computes 16 or 32 rows: queries / warps rows of dq, or keys / warps rows of dk and
// dv. If D is above 128, the sums of dk and dv need more registers than a warp has. Then two warps
// share 16 rows: the first computes P and dv, the second computes dk from P.
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionGradQueries {
  static constexpr int tiles = (Shape::seq + Tile::queries - 1) / Tile::queries;
  static constexpr int blocks = Shape::batch * Shape::heads * tiles;
  static constexpr int queryBytes = Tile::queries * D * 2;
  static constexpr int keyBytes = Tile::keys * D * 2;
  // Shared memory holds tiles of q and dout, `stages` tiles of keys and of values, lse, and delta.
  static constexpr int sharedBytes =
      2 * queryBytes + 2 * Tile::stages * keyBytes + 2 * 4 * Tile::queries;
};
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionGradKeys {
  static constexpr int tiles = (Shape::seq + Tile::keys - 1) / Tile::keys;
  static constexpr int blocks = Shape::batch * Shape::kvHeads * tiles;
  static constexpr int queryBytes = Tile::queries * D * 2;
  static constexpr int keyBytes = Tile::keys * D * 2;
  // A query has words for lse, delta and, if hasFirstKey(), the first key that the query sees.
  static constexpr int rowWords = Shape::window > 0 || Shape::documents ? 3 : 2;
  static constexpr int stageBytes = 2 * queryBytes + rowWords * 4 * Tile::queries;
  static constexpr bool inPairs = D > 128;
  // The probabilities (f32) that the first warp of a pair passes to the second.
  static constexpr int pairBytes = inPairs ? 4 * Tile::keys * Tile::queries : 0;
  static constexpr int sharedBytes = 2 * keyBytes + Tile::stages * stageBytes + pairBytes;
};

namespace attention {

// Rotates back (RoPE) the 16 * M rows that an mma left in `x`. They are the rows of a sequence from
// `first` on. The whole warp must call it.
template <typename Shape, int M, int N>
__device__ inline void rotateBack(float (&x)[M][N][4], const float *cos, const float *sin,
                                  int first) {
  constexpr int pairs = Shape::headDim / 2, shift = pairs / 8;
  const int lane = int(threadIdx.x) % 32, column = lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int row = first + 16 * m + 8 * half + lane / 4;
      i64 at = i64(row) * pairs + column;
      if constexpr (pairs % 8 == 0) {
        if (row >= Shape::seq)
          continue;
#pragma unroll
        for (int n = 0; n < shift; ++n) {
          Vec<float, 2> c = load<2>(cos + at + 8 * n), s = load<2>(sin + at + 8 * n);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float low = x[m][n][2 * half + e], high = x[m][n + shift][2 * half + e];
            x[m][n][2 * half + e] = low * c.at[e] + high * s.at[e];
            x[m][n + shift][2 * half + e] = high * c.at[e] - low * s.at[e];
          }
        }
      } else {
        // Columns c and c + headDim / 2 form a pair, and headDim / 2 is 8 shift + 4. So the partner
        // of a column of lane l is in lane l ^ 2, whose columns modulo 8 differ from l's by 4.
        constexpr int groups = 2 * shift + 1;
        const bool isFirstHalf = column < 4;
        float other[groups][2];
#pragma unroll
        for (int n = 0; n < groups; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            other[n][e] = __shfl_xor_sync(kFullWarp, x[m][n][2 * half + e], 2);
        if (row >= Shape::seq)
          continue;
#pragma unroll
        for (int n = 0; n < groups; ++n) {
          const bool isLow = n < shift || (n == shift && isFirstHalf);
          const i64 pair = at + 8 * n - (isLow ? 0 : pairs);
          Vec<float, 2> c = load<2>(cos + pair), s = load<2>(sin + pair);
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            // The partner is in group forFirst of 8 columns if this lane has columns 0-3 of each
            // group, and in group forLast if this lane has columns 4-7.
            const int forFirst = n <= shift ? n + shift : n - shift - 1;
            const int forLast = n < shift ? n + shift + 1 : n - shift;
            float partner = isFirstHalf ? other[forFirst][e] : other[forLast][e];
            float turned = partner * s.at[e];
            x[m][n][2 * half + e] =
                x[m][n][2 * half + e] * c.at[e] + (isLow ? turned : -turned);
          }
        }
      }
    }
}

// Sets masked scores to minus infinity. s[i, j] is the score of key firstKey + i and query
// firstQuery + j. If hasFirstKey(), rows[2 Queries + j] is the first key that query j sees in a
// tile of `Queries` queries.
template <typename Shape, int Queries, int M, int N>
__device__ inline void maskColumns(float (&s)[M][N][4], const float *rows, int firstKey,
                                   int firstQuery) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      int column = 8 * n + lane % 4 * 2 + e, i = firstQuery + column, lowest = 0;
      if constexpr (hasFirstKey<Shape>())
        lowest = __float_as_int(rows[2 * Queries + column]);
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          int j = firstKey + 16 * m + 8 * half + lane / 4;
          bool visible = j <= i;
          if constexpr (hasFirstKey<Shape>())
            visible = visible && j >= lowest;
          s[m][n][2 * half + e] = visible ? s[m][n][2 * half + e] : -infinity();
        }
    }
}

template <int M, int N> __device__ inline void multiply(float (&d)[M][N][4], float factor) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        d[m][n][e] *= factor;
}

// Computes the sum of dout * out over each row, for 16 * M rows of a sequence from `first` on.
// Stores the sums to `shared`, f32 [16 * M], with zeros for rows >= Shape::seq, and to `delta`,
// where consecutive rows are Shape::heads elements apart. The whole warp must call it.
template <typename Shape, int M, int D>
__device__ inline void sumRows(const bf16 *out, const bf16 *dout, float *delta, float *shared,
                               int first) {
  constexpr int across = D % 64 == 0 ? 8 : 4, down = 32 / across;
  const int lane = int(threadIdx.x) % 32, column = lane % across * 8;
#pragma unroll
  for (int i = 0; i < 16 * M / down; ++i) {
    int band = lane / across + i * down, row = first + band;
    float sum = 0;
    if (row < Shape::seq) {
#pragma unroll
      for (int c = 0; c < D; c += across * 8) {
        if (Shape::headDim != D && column + c >= Shape::headDim)
          continue;
        Vec<bf16, 8> o = load<8>(out + i64(row) * Shape::outPitch + column + c);
        Vec<bf16, 8> g = load<8>(dout + i64(row) * Shape::doutPitch + column + c);
#pragma unroll
        for (int e = 0; e < 8; ++e)
          sum = fmaf(toFloat(o.at[e]), toFloat(g.at[e]), sum);
      }
    }
#pragma unroll
    for (int other = 1; other < across; other *= 2)
      sum += __shfl_xor_sync(kFullWarp, sum, other);
    if (lane % across == 0) {
      shared[band] = sum;
      if (row < Shape::seq)
        storeOne(delta + i64(row) * Shape::heads, sum);
    }
  }
  __syncwarp();
}

} // namespace attention

// Computes dq (bf16) and delta (f32 [batch * seq, heads]). `starts` is null without
// Shape::documents, `cos` and `sin` without Shape::rope, `largest` without Shape::largest. Grid:
// AttentionGradQueries::blocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionGradQueries(const bf16 *q, const bf16 *k, const bf16 *v,
                                            const bf16 *out, const float *lse, const bf16 *dout,
                                            const i32 *starts, const float *cos, const float *sin,
                                            bf16 *dq, float *delta, float *largest) {
  using namespace attention;
  using Plan = AttentionGradQueries<Shape, Tile, D>;
  constexpr int columns = Shape::headDim, threads = 32 * Tile::warps, seq = Shape::seq;
  constexpr int M = Tile::queries / (16 * Tile::warps), N = Tile::keys / 8;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  static_assert(M * 16 * Tile::warps == Tile::queries, "bands of 16 rows");
  static_assert(D % 32 == 0 && Tile::keys % 16 == 0 && Tile::stages >= 2, "whole tiles");
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
  dq += token * Shape::dqPitch + work.head * columns;
  lse += token * Shape::heads + work.head;
  delta += token * Shape::heads + work.head;
  starts += Shape::documents ? token : 0;

  const u32 queries = sharedAddress(sharedMemory()), gradients = queries + Plan::queryBytes;
  const u32 stages = gradients + Plan::queryBytes;
  const int first = work.tile * Tile::queries;
  const int last = lesser(first + Tile::queries, seq) - 1;
  const int firstTile = uniform(firstKeyOf<Shape>(starts, first)) / Tile::keys;
  const int endTile = last / Tile::keys + 1;

  auto fetch = [&](int tile, int stage) {
    if (tile < endTile) {
      u32 keys = stages + stage * (2 * Plan::keyBytes);
      copyTile<Tile::keys, D, columns, threads, Shape::kPitch, seq>(keys, k, tile);
      copyTile<Tile::keys, D, columns, threads, Shape::vPitch, seq>(keys + Plan::keyBytes, v, tile);
    }
    copyAsyncCommit();
  };
  copyTile<Tile::queries, D, columns, threads, Shape::qPitch, seq>(queries, q, work.tile);
  copyTile<Tile::queries, D, columns, threads, Shape::doutPitch, seq>(gradients, dout, work.tile);

  const int lane = int(threadIdx.x) % 32, warp = uniform(int(threadIdx.x) / 32);
  const int warpFirst = first + warp * 16 * M;
  const int warpLast = lesser(warpFirst + 16 * M, seq) - 1;
  // For each row of the warp: lse / ln 2 and delta in shared memory. A row past the end of the
  // sequence has lse = infinity, so that its probabilities are zero.
  float *rowLse = reinterpret_cast<float *>(sharedMemory() + 2 * Plan::queryBytes +
                                            2 * Tile::stages * Plan::keyBytes) +
                  warp * (2 * 16 * M);
  float *rowDelta = rowLse + 16 * M;
  sumRows<Shape, M, D>(out, dout, delta, rowDelta, warpFirst);
  if (lane < 16 * M)
    rowLse[lane] = warpFirst + lane < seq
                       ? loadOne(lse + i64(warpFirst + lane) * Shape::heads) * kLog2E
                       : infinity();
  int warpLow = 0, warpLowLast = 0;
  if constexpr (hasFirstKey<Shape>()) {
    warpLow = uniform(firstKeyOf<Shape>(starts, lesser(warpFirst, seq - 1)));
    warpLowLast = uniform(firstKeyOf<Shape>(starts, warpLast));
  }
#pragma unroll
  for (int i = 0; i < Tile::stages - 1; ++i)
    fetch(firstTile + i, i);

  const Lane<D> place;
  const u32 queryBand = queries + warp * (16 * M) * (2 * D);
  const u32 gradientBand = gradients + warp * (16 * M) * (2 * D);
  float sum[M][D / 8][4];
  clear(sum);
  u32 heldQueries[M][D / 16][4], heldGradients[M][D / 16][4];
  if constexpr (Tile::queryRegisters) {
    copyAsyncWait<Tile::stages - 2>();
    __syncthreads();
    loadRows(heldQueries, queryBand, place);
    loadRows(heldGradients, gradientBand, place);
  }

  int stage = 0;
  for (int tile = firstTile; tile < endTile; ++tile) {
    copyAsyncWait<Tile::stages - 2>();
    __syncthreads();
    fetch(tile + Tile::stages - 1, stage == 0 ? Tile::stages - 1 : stage - 1);
    const u32 keys = stages + stage * (2 * Plan::keyBytes), values = keys + Plan::keyBytes;
    stage = stage == Tile::stages - 1 ? 0 : stage + 1;
    const int firstKey = tile * Tile::keys, lastKey = firstKey + Tile::keys - 1;
    if (firstKey > warpLast || lastKey < warpLow || warpFirst >= seq)
      continue;

    float s[M][N][4];
    clear(s);
    if constexpr (Tile::queryRegisters)
      multiplyRows<M, N, D>(s, heldQueries, keys, place);
    else
      multiplyRows<M, N, D>(s, queryBand, keys, place);
    if (lastKey > warpFirst || (hasFirstKey<Shape>() && firstKey < warpLowLast))
      maskRows<Shape>(s, starts, warpFirst, firstKey);
    float d[M][N][4];
    clear(d);
    if constexpr (Tile::queryRegisters)
      multiplyRows<M, N, D>(d, heldGradients, values, place);
    else
      multiplyRows<M, N, D>(d, gradientBand, values, place);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float base = rowLse[16 * m + 8 * half + lane / 4];
        float sumOfRow = rowDelta[16 * m + 8 * half + lane / 4];
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e)
            d[m][n][e] =
                exp2Fast(fmaf(s[m][n][e], scaleLog2, -base)) * (d[m][n][e] - sumOfRow);
      }
    u32 operand[M][N / 2][4];
    toOperand(operand, d);
    multiplyColumns<M, N / 2, D>(sum, operand, keys, place);
  }
  copyAsyncWait<0>();

  multiply(sum, Shape::scale);
  if constexpr (Shape::rope)
    rotateBack<Shape>(sum, cos, sin, warpFirst);
  storeLargest<Shape, /*ByKeys=*/false, Plan::tiles, Tile::together, kLargestPitch<Shape>>(
      sum, largest, 0, warpFirst);
  u8 *rows = sharedMemory() + (queryBand - queries);
  __syncwarp();
  writeTile<M, D>(rows, sum);
  __syncwarp();
  storeRows<Tile::queries, M, D, columns, Shape::dqPitch, seq>(rows, dq, warpFirst);
}

// Computes dk and dv (bf16). Grid: AttentionGradKeys::blocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionGradKeys(const bf16 *q, const bf16 *k, const bf16 *v,
                                         const float *lse, const bf16 *dout, const float *delta,
                                         const i32 *starts, const float *cos, const float *sin,
                                         bf16 *dk, bf16 *dv, float *largest) {
  using namespace attention;
  using Plan = AttentionGradKeys<Shape, Tile, D>;
  constexpr int columns = Shape::headDim, threads = 32 * Tile::warps, seq = Shape::seq;
  constexpr int bands = Plan::inPairs ? Tile::warps / 2 : Tile::warps;
  constexpr int M = Tile::keys / (16 * bands), N = Tile::queries / 8;
  constexpr int group = Shape::heads / Shape::kvHeads;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  static_assert(M * 16 * bands == Tile::keys, "bands of 16 rows");
  static_assert(!Plan::inPairs || M == 1, "a pair for each band");
  static_assert(D % 32 == 0 && Tile::queries % 16 == 0, "whole tiles");
  static_assert(columns <= D && columns % 8 == 0, "whole units of 16 bytes");
  static_assert(Tile::queries <= threads, "a thread per row of lse");
  static_assert(Tile::stages == 2, "two stages");

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

  const u32 keys = sharedAddress(sharedMemory()), values = keys + Plan::keyBytes;
  const u32 stages = values + Plan::keyBytes;
  const int first = work.tile * Tile::keys;
  const int last = lesser(first + Tile::keys, seq) - 1;
  const int firstTile = first / Tile::queries;
  const int endTile = ceilDiv(uniform(endOfQueries<Shape>(starts, last)), Tile::queries);
  // The steps go through the query heads that share the key head, one head after the other.
  const int tilesOfHead = endTile - firstTile, steps = group * tilesOfHead;

  auto fetch = [&](int head, int tile, int stage) {
    u32 to = stages + stage * Plan::stageBytes;
    copyTile<Tile::queries, D, columns, threads, Shape::qPitch, seq>(to, q + head * columns, tile);
    copyTile<Tile::queries, D, columns, threads, Shape::doutPitch, seq>(
        to + Plan::queryBytes, dout + head * columns, tile);
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
    return reinterpret_cast<float *>(sharedMemory() + 2 * Plan::keyBytes +
                                     stage * Plan::stageBytes + 2 * Plan::queryBytes);
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

  copyTile<Tile::keys, D, columns, threads, Shape::kPitch, seq>(keys, k, work.tile);
  copyTile<Tile::keys, D, columns, threads, Shape::vPitch, seq>(values, v, work.tile);
  fetch(0, firstTile, 0);
  copyAsyncCommit();
  writeRow(readRow(0, firstTile), 0);

  const int lane = int(threadIdx.x) % 32, warp = uniform(int(threadIdx.x) / 32);
  const int band = Plan::inPairs ? warp % bands : warp;
  const int warpFirst = first + band * 16 * M;
  const int warpLast = lesser(warpFirst + 16 * M, seq) - 1;
  const Lane<D> place;
  const u32 keyBand = keys + band * (16 * M) * (2 * D);
  const u32 valueBand = values + band * (16 * M) * (2 * D);
  // `sum` is for dk and `valueSum` for dv. A warp of a pair uses only `sum`, for its one result.
  float sum[M][D / 8][4], valueSum[M][D / 8][4];
  clear(sum);
  clear(valueSum);
  // Turns scores into probabilities. `rows` has lse, delta and so on from query `query` on.
  auto probabilities = [&](float (&s)[M][N][4], const float *rows, int query) {
    bool masked = warpFirst + 16 * M - 1 > query;
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
        for (int m = 0; m < M; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            s[m][n][2 * half + e] = exp2Fast(fmaf(s[m][n][2 * half + e], scaleLog2, -rowLse));
      }
  };
  // Turns the probabilities `s` into dS. `d` has dP.
  auto takeGradients = [&](float (&s)[M][N][4], const float (&d)[M][N][4], const float *rows) {
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float rowDelta = rows[Tile::queries + 8 * n + lane % 4 * 2 + e];
#pragma unroll
        for (int m = 0; m < M; ++m)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            s[m][n][2 * half + e] *= d[m][n][2 * half + e] - rowDelta;
      }
  };
  // The address where a lane of a pair's first warp stores probabilities for the second warp.
  float4 *const handed = reinterpret_cast<float4 *>(sharedMemory() + 2 * Plan::keyBytes +
                                                    Tile::stages * Plan::stageBytes) +
                         band * 32 + lane;

  int head = 0, tile = firstTile;
  for (int step = 0; step < steps; ++step) {
    const int stage = step % 2, query = tile * Tile::queries;
    if (++tile == endTile) {
      tile = firstTile;
      ++head;
    }
    copyAsyncWait<0>();
    __syncthreads();
    Row next;
    if (step + 1 < steps) {
      fetch(head, tile, 1 - stage);
      next = readRow(head, tile);
    }
    copyAsyncCommit();

    const u32 queries = stages + stage * Plan::stageBytes;
    const u32 gradients = queries + Plan::queryBytes;
    const float *rows = rowsOf(stage);
    const int queryLast = lesser(query + Tile::queries, seq) - 1;
    bool seen = warpFirst < seq && warpFirst <= queryLast;
    if constexpr (hasFirstKey<Shape>())
      seen = seen && __float_as_int(rows[2 * Tile::queries]) <= warpLast;
    if constexpr (Plan::inPairs) {
      float s[M][N][4], d[M][N][4];
      u32 operand[M][N / 2][4];
      if (step + 1 < steps)
        writeRow(next, 1 - stage);
      if (warp < bands) {
        if (seen) {
          clear(s);
          multiplyRows<M, N, D>(s, keyBand, queries, place);
          probabilities(s, rows, query);
#pragma unroll
          for (int n = 0; n < N; ++n)
            handed[n * (32 * bands)] = make_float4(s[0][n][0], s[0][n][1], s[0][n][2], s[0][n][3]);
        }
        barrierOf<threads>(1);
        if (seen) {
          toOperand(operand, s);
          multiplyColumns<M, N / 2, D>(sum, operand, gradients, place);
        }
      } else {
        if (seen) {
          clear(d);
          multiplyRows<M, N, D>(d, valueBand, gradients, place);
        }
        barrierOf<threads>(1);
        if (seen) {
#pragma unroll
          for (int n = 0; n < N; ++n) {
            const float4 p = handed[n * (32 * bands)];
            s[0][n][0] = p.x, s[0][n][1] = p.y, s[0][n][2] = p.z, s[0][n][3] = p.w;
          }
          takeGradients(s, d, rows);
          toOperand(operand, s);
          multiplyColumns<M, N / 2, D>(sum, operand, queries, place);
        }
      }
    } else if (seen) {
      float s[M][N][4];
      clear(s);
      multiplyRows<M, N, D>(s, keyBand, queries, place);
      if (step + 1 < steps)
        writeRow(next, 1 - stage);
      probabilities(s, rows, query);
      u32 operand[M][N / 2][4];
      toOperand(operand, s);
      multiplyColumns<M, N / 2, D>(valueSum, operand, gradients, place);

      float d[M][N][4];
      clear(d);
      multiplyRows<M, N, D>(d, valueBand, gradients, place);
      takeGradients(s, d, rows);
      toOperand(operand, s);
      multiplyColumns<M, N / 2, D>(sum, operand, queries, place);
    } else if (step + 1 < steps)
      writeRow(next, 1 - stage);
  }
  copyAsyncWait<0>();

  auto storeLargestOf = [&](const float (&x)[M][D / 8][4], int column) {
    storeLargest<Shape, /*ByKeys=*/true, Plan::tiles, Tile::together, kLargestPitch<Shape>>(
        x, largest, column, warpFirst);
  };
  constexpr int keyColumn = Shape::heads, valueColumn = keyColumn + Shape::kvHeads;
  u8 *keyRows = sharedMemory() + (keyBand - keys), *valueRows = keyRows + Plan::keyBytes;
  if constexpr (Plan::inPairs)
    __syncthreads(); // after this barrier, both warps of a pair have read the rows
  __syncwarp();
  // dv comes first: its sums are in no registers any more while dk is rotated.
  if constexpr (!Plan::inPairs) {
    storeLargestOf(valueSum, valueColumn);
    writeTile<M, D>(valueRows, valueSum);
  }
  if (!Plan::inPairs || warp >= bands) {
    multiply(sum, Shape::scale);
    if constexpr (Shape::rope)
      rotateBack<Shape>(sum, cos, sin, warpFirst);
    storeLargestOf(sum, keyColumn);
    writeTile<M, D>(keyRows, sum);
  } else {
    storeLargestOf(sum, valueColumn);
    writeTile<M, D>(valueRows, sum);
  }
  __syncwarp();
  if (!Plan::inPairs || warp >= bands)
    storeRows<Tile::keys, M, D, columns, Shape::dkPitch, seq>(keyRows, dk, warpFirst);
  if (!Plan::inPairs || warp < bands)
    storeRows<Tile::keys, M, D, columns, Shape::dvPitch, seq>(valueRows, dv, warpFirst);
}

} // namespace lmc
