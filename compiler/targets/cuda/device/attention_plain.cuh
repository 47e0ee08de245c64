// Computes attention and its gradients in f32 arithmetic without tensor cores, for f32 or bf16 and
// any head size. Formulas, masks, arguments and results are those of attention_forward.cuh and
// attention_backward.cuh.
//
// A warp computes one row: a query, or a key in attentionGradKeysPlain. It loops over tiles of 32
// keys (or queries), which all warps of the block share. A lane computes the scores of one row of
// the tile, and every 32nd column of the result.
#pragma once

#include "lmc/attention.cuh"
#include "lmc/math.cuh"

namespace lmc {

// A block computes `Tile::warps` rows, one per warp.
template <typename Shape, typename Tile> struct AttentionPlain {
  static constexpr int tiles = (Shape::seq + Tile::warps - 1) / Tile::warps;
  static constexpr int rowBlocks = Shape::batch * Shape::heads * tiles;
  static constexpr int gradKeysBlocks = Shape::batch * Shape::kvHeads * tiles;
  // Shared memory holds two tiles of 32 rows, and two rows for every warp.
  static constexpr int sharedBytes =
      4 * (2 * 32 * (Shape::headDim + 1) + 2 * Tile::warps * Shape::headDim);
};

namespace attention {

template <typename T> __device__ inline T fromReal(float x);
template <> __device__ inline float fromReal<float>(float x) { return x; }
template <> __device__ inline bf16 fromReal<bf16>(float x) { return toBf16(x); }

__device__ inline float warpSum(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    x += __shfl_xor_sync(kFullWarp, x, other);
  return x;
}
__device__ inline float warpMax(float x) {
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, other));
  return x;
}

// Copies row `row` to shared memory as f32, or zeros if row >= seq. A whole warp must call it.
template <int D, typename T>
__device__ inline void readRow(float *to, const T *from, int pitch, int row, int seq) {
  for (int c = int(threadIdx.x) % 32; c < D; c += 32)
    to[c] = row < seq ? toReal(loadOne(from + i64(row) * pitch + c)) : 0;
}

// Copies 32 rows from row `first` on to shared memory. The starts of rows are D + 1 words apart,
// which avoids bank conflicts along a column. The whole block must call it.
template <int D, int Warps, typename T>
__device__ inline void readTile(float *to, const T *from, int pitch, int first, int seq) {
  for (int row = int(threadIdx.x) / 32; row < 32; row += Warps)
    readRow<D>(to + row * (D + 1), from, pitch, first + row, seq);
}

template <int D> __device__ inline float dot(const float *a, const float *b) {
  float sum = 0;
#pragma unroll 8
  for (int c = 0; c < D; ++c)
    sum = fmaf(a[c], b[c], sum);
  return sum;
}

// Computes x[c] += sum over j of weight_j tile[j][lane + 32 c]. Lane j passes weight_j as `weight`.
template <int D>
__device__ inline void addRows(float (&x)[(D + 31) / 32], float weight, const float *tile) {
  for (int j = 0; j < 32; ++j) {
    float w = __shfl_sync(kFullWarp, weight, j);
#pragma unroll
    for (int c = 0; c < (D + 31) / 32; ++c) {
      int column = int(threadIdx.x) % 32 + 32 * c;
      if (column < D)
        x[c] = fmaf(w, tile[j * (D + 1) + column], x[c]);
    }
  }
}

// Stores factor * x to row `row` of `to`. With `Rotate`, first rotates the row back (RoPE).
// `passing` is shared memory of the warp for D words. With Shape::largest, the largest absolute value
// of what is stored becomes largest[place].
template <typename Shape, bool Rotate, typename T>
__device__ inline void writeRow(T *to, int pitch, int row,
                                const float (&x)[(Shape::headDim + 31) / 32], float factor,
                                const float *cos, const float *sin, float *passing,
                                float *largest, i64 place) {
  constexpr int D = Shape::headDim;
  const int lane = int(threadIdx.x) % 32;
  __syncwarp();
#pragma unroll
  for (int c = 0; c < (D + 31) / 32; ++c)
    if (lane + 32 * c < D)
      passing[lane + 32 * c] = x[c] * factor;
  __syncwarp();
  if (row >= Shape::seq)
    return;
  float most = 0;
  for (int c = lane; c < D; c += 32) {
    float y = passing[c];
    if constexpr (Rotate) {
      int pair = c % (D / 2);
      i64 at = i64(row) * (D / 2) + pair;
      float turn = loadOne(sin + at) * passing[c < D / 2 ? c + D / 2 : pair];
      y = fmaf(y, loadOne(cos + at), c < D / 2 ? turn : -turn);
    }
    const T rounded = fromReal<T>(y);
    most = maximum(fabsf(toReal(rounded)), most);
    storeOne(to + i64(row) * pitch + c, rounded);
  }
  if constexpr (Shape::largest) {
#pragma unroll
    for (int other = 16; other > 0; other /= 2)
      most = maximum(__shfl_xor_sync(kFullWarp, most, other), most);
    if (lane == 0)
      storeOne(largest + place, most);
  }
}

} // namespace attention

// Computes out and lse. Grid: AttentionPlain::rowBlocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, typename T>
__device__ inline void attentionForwardPlain(const T *q, const T *k, const T *v, const i32 *starts,
                                             T *out, float *lse, float *largest) {
  using namespace attention;
  using Plan = AttentionPlain<Shape, Tile>;
  constexpr int D = Shape::headDim, seq = Shape::seq;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  const Work work =
      workOf<Shape::batch, Shape::heads, Plan::tiles, Shape::batch * Shape::heads, true>(
          int(blockIdx.x));
  const i64 token = i64(work.batch) * seq;
  const int kvHead = work.head / (Shape::heads / Shape::kvHeads);
  q += token * Shape::qPitch + work.head * D;
  k += token * Shape::kPitch + kvHead * D;
  v += token * Shape::vPitch + kvHead * D;
  out += token * Shape::outPitch + work.head * D;
  starts += Shape::documents ? token : 0;

  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float *keys = reinterpret_cast<float *>(sharedMemory()), *values = keys + 32 * (D + 1);
  float *query = values + 32 * (D + 1) + warp * D;
  const int first = work.tile * Tile::warps, i = first + warp;
  const int last = lesser(first + Tile::warps, seq) - 1;
  const int lowest = firstKeyOf<Shape>(starts, lesser(i, seq - 1));
  readRow<D>(query, q, Shape::qPitch, i, seq);

  float o[(D + 31) / 32] = {}, highest = kLowest, sum = 0;
  for (int key = firstKeyOf<Shape>(starts, first) / 32 * 32; key <= last; key += 32) {
    __syncthreads();
    readTile<D, Tile::warps>(keys, k, Shape::kPitch, key, seq);
    readTile<D, Tile::warps>(values, v, Shape::vPitch, key, seq);
    __syncthreads();
    const int j = key + lane;
    float s = j <= i && j >= lowest ? dot<D>(query, keys + lane * (D + 1)) : -infinity();
    float most = fmaxf(highest, warpMax(s)), rescale = exp2Fast((highest - most) * scaleLog2);
    highest = most;
    float p = exp2Fast(fmaf(s, scaleLog2, -most * scaleLog2));
    sum = fmaf(sum, rescale, warpSum(p));
#pragma unroll
    for (int c = 0; c < (D + 31) / 32; ++c)
      o[c] *= rescale;
    addRows<D>(o, p, values);
  }
  writeRow<Shape, false>(out, Shape::outPitch, i, o, sum > 0 ? 1 / sum : 0, nullptr, nullptr,
                         query, largest, (token + i) * Shape::heads + work.head);
  if (lane == 0 && i < seq)
    storeOne(lse + (token + i) * Shape::heads + work.head, highest * Shape::scale + logf(sum));
}

// Computes dq and delta. Grid: AttentionPlain::rowBlocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, typename T>
__device__ inline void attentionGradQueriesPlain(const T *q, const T *k, const T *v, const T *out,
                                                 const float *lse, const T *dout,
                                                 const i32 *starts, const float *cos,
                                                 const float *sin, T *dq, float *delta,
                                                 float *largest) {
  using namespace attention;
  using Plan = AttentionPlain<Shape, Tile>;
  constexpr int D = Shape::headDim, seq = Shape::seq;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  const Work work =
      workOf<Shape::batch, Shape::heads, Plan::tiles, Shape::batch * Shape::heads, true>(
          int(blockIdx.x));
  const i64 token = i64(work.batch) * seq;
  const int kvHead = work.head / (Shape::heads / Shape::kvHeads);
  q += token * Shape::qPitch + work.head * D;
  k += token * Shape::kPitch + kvHead * D;
  v += token * Shape::vPitch + kvHead * D;
  out += token * Shape::outPitch + work.head * D;
  dout += token * Shape::doutPitch + work.head * D;
  dq += token * Shape::dqPitch + work.head * D;
  starts += Shape::documents ? token : 0;

  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float *keys = reinterpret_cast<float *>(sharedMemory()), *values = keys + 32 * (D + 1);
  float *query = values + 32 * (D + 1) + 2 * warp * D, *gradient = query + D;
  const int first = work.tile * Tile::warps, i = first + warp;
  const int last = lesser(first + Tile::warps, seq) - 1;
  const int lowest = firstKeyOf<Shape>(starts, lesser(i, seq - 1));
  readRow<D>(query, q, Shape::qPitch, i, seq);
  readRow<D>(gradient, dout, Shape::doutPitch, i, seq);

  float rowDelta = 0, rowLse = infinity();
  const i64 row = (token + i) * Shape::heads + work.head;
  if (i < seq) {
    for (int c = lane; c < D; c += 32)
      rowDelta = fmaf(toReal(loadOne(out + i64(i) * Shape::outPitch + c)), gradient[c], rowDelta);
    rowLse = loadOne(lse + row) * kLog2E;
  }
  rowDelta = warpSum(rowDelta);
  if (lane == 0 && i < seq)
    storeOne(delta + row, rowDelta);

  float sum[(D + 31) / 32] = {};
  for (int key = firstKeyOf<Shape>(starts, first) / 32 * 32; key <= last; key += 32) {
    __syncthreads();
    readTile<D, Tile::warps>(keys, k, Shape::kPitch, key, seq);
    readTile<D, Tile::warps>(values, v, Shape::vPitch, key, seq);
    __syncthreads();
    const int j = key + lane;
    float d = 0;
    if (j <= i && j >= lowest) {
      float s = dot<D>(query, keys + lane * (D + 1));
      d = exp2Fast(fmaf(s, scaleLog2, -rowLse)) *
          (dot<D>(gradient, values + lane * (D + 1)) - rowDelta);
    }
    addRows<D>(sum, d, keys);
  }
  writeRow<Shape, Shape::rope>(dq, Shape::dqPitch, i, sum, Shape::scale, cos, sin, query,
                               largest, (token + i) * kLargestPitch<Shape> + work.head);
}

// Computes dk and dv. Grid: AttentionPlain::gradKeysBlocks blocks of 32 Tile::warps threads.
template <typename Shape, typename Tile, typename T>
__device__ inline void attentionGradKeysPlain(const T *q, const T *k, const T *v, const float *lse,
                                              const T *dout, const float *delta, const i32 *starts,
                                              const float *cos, const float *sin, T *dk, T *dv,
                                              float *largest) {
  using namespace attention;
  using Plan = AttentionPlain<Shape, Tile>;
  constexpr int D = Shape::headDim, seq = Shape::seq, group = Shape::heads / Shape::kvHeads;
  constexpr float scaleLog2 = Shape::scale * kLog2E;
  const Work work =
      workOf<Shape::batch, Shape::kvHeads, Plan::tiles, Shape::batch * Shape::kvHeads, false>(
          int(blockIdx.x));
  const i64 token = i64(work.batch) * seq;
  k += token * Shape::kPitch + work.head * D;
  v += token * Shape::vPitch + work.head * D;
  dk += token * Shape::dkPitch + work.head * D;
  dv += token * Shape::dvPitch + work.head * D;
  starts += Shape::documents ? token : 0;

  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float *queries = reinterpret_cast<float *>(sharedMemory()), *gradients = queries + 32 * (D + 1);
  float *key = gradients + 32 * (D + 1) + 2 * warp * D, *value = key + D;
  const int first = work.tile * Tile::warps, j = first + warp;
  const i64 place = (token + j) * kLargestPitch<Shape> + Shape::heads + work.head;
  const int last = lesser(first + Tile::warps, seq) - 1;
  readRow<D>(key, k, Shape::kPitch, j, seq);
  readRow<D>(value, v, Shape::vPitch, j, seq);

  const int end = endOfQueries<Shape>(starts, last);
  float keySum[(D + 31) / 32] = {}, valueSum[(D + 31) / 32] = {};
  for (int head = work.head * group; head < (work.head + 1) * group; ++head)
    for (int query = first / 32 * 32; query < end; query += 32) {
      __syncthreads();
      readTile<D, Tile::warps>(queries, q + token * Shape::qPitch + head * D, Shape::qPitch, query,
                               seq);
      readTile<D, Tile::warps>(gradients, dout + token * Shape::doutPitch + head * D,
                               Shape::doutPitch, query, seq);
      __syncthreads();
      const int i = query + lane;
      float p = 0, d = 0;
      if (i < seq && j <= i && j >= firstKeyOf<Shape>(starts, i)) {
        const i64 row = (token + i) * Shape::heads + head;
        float s = dot<D>(key, queries + lane * (D + 1));
        p = exp2Fast(fmaf(s, scaleLog2, -loadOne(lse + row) * kLog2E));
        d = p * (dot<D>(value, gradients + lane * (D + 1)) - loadOne(delta + row));
      }
      addRows<D>(valueSum, p, gradients);
      addRows<D>(keySum, d, queries);
    }
  writeRow<Shape, Shape::rope>(dk, Shape::dkPitch, j, keySum, Shape::scale, cos, sin, key, largest,
                               place);
  writeRow<Shape, false>(dv, Shape::dvPitch, j, valueSum, 1, nullptr, nullptr, value, largest,
                         place + Shape::kvHeads);
}

} // namespace lmc
