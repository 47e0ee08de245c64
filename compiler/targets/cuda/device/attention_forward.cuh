// Computes the forward pass of flash attention on tensor cores (Dao, FlashAttention-2,
// arXiv:2307.08691; online softmax: Milakov and Gimelshein, arXiv:1805.02867).
//
// A thread block computes `Tile::queries` queries of one head, and loops over tiles of `Tile::keys`
// keys. For each query it keeps the maximum score m, the sum l of exponentials and the unnormalised
// output O. A tile of keys k_j and values v_j changes them to m', l' and O':
//   s_j = q.k_j    m' = max(m, max_j s_j)    a = exp(scale (m - m'))
//   l' = a l + sum_j exp(scale (s_j - m'))   O' = a O + sum_j exp(scale (s_j - m')) v_j
// At the end out = O / l and lse = scale m + log l. Exponentials are computed as powers of two, so
// that one multiply-add also applies scale / ln 2.
//
// Tiles of keys and values pass through a ring of `Tile::slots` buffers in shared memory. A warp
// skips a tile if its queries see no key of the tile.
#pragma once

#include "lmc/attention.cuh"

namespace lmc {

// A `Tile` describes the variant by constants: int queries (16 or 32 per warp), keys (a multiple of
// 16), warps, slots (at least 2), together (pairs of (sequence, head) at a time), bool
// queryRegisters (a warp keeps its rows of q in registers).
template <typename Shape, typename Tile, int D = Shape::headDim> struct AttentionForward {
  static constexpr int tiles = (Shape::seq + Tile::queries - 1) / Tile::queries;
  static constexpr int blocks = Shape::batch * Shape::heads * tiles;
  static constexpr int queryBytes = Tile::queries * D * 2;
  static constexpr int slotBytes = Tile::keys * D * 2;
  static constexpr int sharedBytes = queryBytes + Tile::slots * slotBytes;
};

namespace attention {

// The online softmax of a warp's rows. A lane has some columns of each row. Steps per tile:
//   grow            may raise `largest`; returns true if it did for any row of the warp
//   exponentials    turns scores into probabilities, and adds these to `sum`
//   rescale         scales the output so far to the new `largest`; needed if grow returned true
// grow keeps `largest` while exp(scale * m), for the maximum score m of each row, is at most
// 2^kHeadroom exp(scale * largest). This does not change output / `sum`, and saves most rescales.
constexpr float kHeadroom = 8;

template <int M> struct Softmax {
  float largest[M][2], sum[M][2], factor[M][2];

  __device__ inline void start() {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        largest[m][half] = kLowest;
        sum[m][half] = 0;
        factor[m][half] = 1;
      }
  }

  template <int N> __device__ inline bool grow(const float (&s)[M][N][4], float scaleLog2) {
    float most[M][2];
    bool grown = false;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float tile = s[m][0][2 * half];
#pragma unroll
        for (int n = 0; n < N; ++n)
          tile = fmaxf(tile, fmaxf(s[m][n][2 * half], s[m][n][2 * half + 1]));
        most[m][half] = rowMax(tile);
        grown = grown || (most[m][half] - largest[m][half]) * scaleLog2 > kHeadroom;
      }
    if (__ballot_sync(kFullWarp, grown) == 0)
      return false;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now = fmaxf(largest[m][half], most[m][half]);
        factor[m][half] = exp2Fast((largest[m][half] - now) * scaleLog2);
        largest[m][half] = now;
        sum[m][half] *= factor[m][half];
      }
    return true;
  }

  template <int N> __device__ inline void exponentials(float (&s)[M][N][4], float scaleLog2) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float base = largest[m][half] * scaleLog2;
#pragma unroll
        for (int n = 0; n < N; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[m][n][e] = exp2Fast(fmaf(s[m][n][e], scaleLog2, -base));
            sum[m][half] += s[m][n][e];
          }
      }
  }

  template <int N> __device__ inline void rescale(float (&o)[M][N][4]) const {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int n = 0; n < N; ++n) {
          o[m][n][2 * half] *= factor[m][half];
          o[m][n][2 * half + 1] *= factor[m][half];
        }
  }

  // Divides the output by the sums, and stores lse of the warp's rows. They begin at row `first` of
  // a sequence of `seq` rows. Consecutive elements of lse are `pitch` elements apart.
  template <int N>
  __device__ inline void finish(float (&o)[M][N][4], float *lse, int pitch, int first, int seq,
                                float scale) const {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float total = rowSum(sum[m][half]);
        float inverse = total > 0 ? 1 / total : 0;
#pragma unroll
        for (int n = 0; n < N; ++n) {
          o[m][n][2 * half] *= inverse;
          o[m][n][2 * half + 1] *= inverse;
        }
        int i = first + 16 * m + 8 * half + lane / 4;
        if (lane % 4 == 0 && i < seq)
          storeOne(lse + i64(i) * pitch, largest[m][half] * scale + logf(total));
      }
  }
};

} // namespace attention

// Computes out (bf16) and lse (f32 [batch * seq, heads]) from q, k and v (bf16). `starts` is null
// without Shape::documents, `largest` without Shape::largest. Grid: AttentionForward::blocks blocks of
// 32 Tile::warps threads.
template <typename Shape, typename Tile, int D = Shape::headDim>
__device__ inline void attentionForward(const bf16 *q, const bf16 *k, const bf16 *v,
                                        const i32 *starts, bf16 *out, float *lse, float *largest) {
  using namespace attention;
  using Plan = AttentionForward<Shape, Tile, D>;
  constexpr int columns = Shape::headDim, threads = 32 * Tile::warps, seq = Shape::seq;
  constexpr int M = Tile::queries / (16 * Tile::warps), N = Tile::keys / 8;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  static_assert(M * 16 * Tile::warps == Tile::queries, "bands of 16 rows");
  static_assert(D % 32 == 0 && Tile::keys % 16 == 0, "whole tiles");
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

  const u32 queries = sharedAddress(sharedMemory()), ring = queries + Plan::queryBytes;
  const int first = work.tile * Tile::queries;
  const int last = lesser(first + Tile::queries, seq) - 1;
  const int firstTile = uniform(firstKeyOf<Shape>(starts, first)) / Tile::keys;
  const int endTile = last / Tile::keys + 1;

  // Copies alternate: step 2 i copies the keys of the i-th tile, step 2 i + 1 its values.
  const int steps = 2 * (endTile - firstTile);
  auto fetch = [&](int step, int slot) {
    if (step < steps) {
      u32 to = ring + slot * Plan::slotBytes;
      if (step % 2 == 0)
        copyTile<Tile::keys, D, columns, threads, Shape::kPitch, seq>(to, k, firstTile + step / 2);
      else
        copyTile<Tile::keys, D, columns, threads, Shape::vPitch, seq>(to, v, firstTile + step / 2);
    }
    copyAsyncCommit();
  };
  int step = 0, slot = 0;
  // Waits for this step's tile. Then starts a later step's copy, into the previous step's buffer.
  auto advance = [&] {
    copyAsyncWait<Tile::slots - 2>();
    __syncthreads();
    fetch(step + Tile::slots - 1, slot == 0 ? Tile::slots - 1 : slot - 1);
    u32 tile = ring + slot * Plan::slotBytes;
    ++step;
    slot = slot == Tile::slots - 1 ? 0 : slot + 1;
    return tile;
  };
  copyTile<Tile::queries, D, columns, threads, Shape::qPitch, seq>(queries, q, work.tile);
#pragma unroll
  for (int i = 0; i < Tile::slots - 1; ++i)
    fetch(i, i);

  // The first and the last row of this warp, and the first key that each of the two sees.
  const int warp = uniform(int(threadIdx.x) / 32);
  const int warpFirst = first + warp * 16 * M;
  const int warpLast = lesser(warpFirst + 16 * M, seq) - 1;
  int warpLow = 0, warpLowLast = 0;
  if constexpr (hasFirstKey<Shape>()) {
    warpLow = uniform(firstKeyOf<Shape>(starts, lesser(warpFirst, seq - 1)));
    warpLowLast = uniform(firstKeyOf<Shape>(starts, warpLast));
  }

  const Lane<D> place;
  const u32 band = queries + warp * (16 * M) * (2 * D);
  float o[M][D / 8][4];
  clear(o);
  Softmax<M> softmax;
  softmax.start();
  u32 held[M][D / 16][4];
  if constexpr (Tile::queryRegisters) {
    copyAsyncWait<Tile::slots - 2>();
    __syncthreads();
    loadRows(held, band, place);
  }

  for (int tile = firstTile; tile < endTile; ++tile) {
    const u32 keys = advance();
    const int firstKey = tile * Tile::keys, lastKey = firstKey + Tile::keys - 1;
    const bool seen = firstKey <= warpLast && lastKey >= warpLow && warpFirst < seq;
    u32 p[M][N / 2][4];
    if (seen) {
      float s[M][N][4];
      clear(s);
      if constexpr (Tile::queryRegisters)
        multiplyRows<M, N, D>(s, held, keys, place);
      else
        multiplyRows<M, N, D>(s, band, keys, place);
      if (lastKey > warpFirst || (hasFirstKey<Shape>() && firstKey < warpLowLast))
        maskRows<Shape>(s, starts, warpFirst, firstKey);
      if (softmax.grow(s, scaleLog2))
        softmax.rescale(o);
      softmax.exponentials(s, scaleLog2);
      toOperand(p, s);
    }
    const u32 values = advance();
    if (seen)
      multiplyColumns<M, N / 2, D>(o, p, values, place);
  }

  // The rows of q are no longer needed, so the output overwrites them in shared memory.
  softmax.finish(o, lse, Shape::heads, warpFirst, seq, Shape::scale);
  storeLargest<Shape, /*ByKeys=*/false, Plan::tiles, Tile::together, Shape::heads>(o, largest, 0,
                                                                                  warpFirst);
  u8 *rows = sharedMemory() + (band - queries);
  __syncwarp();
  writeTile<M, D>(rows, o);
  __syncwarp();
  storeRows<Tile::queries, M, D, columns, Shape::outPitch, seq>(rows, out, warpFirst);
}

} // namespace lmc
