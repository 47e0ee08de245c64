// Rows of tokens on their way to their experts and back. Each of `tokens` tokens has chosen
// `chosen` experts; choice c = t chosen + j is the j-th of token t. Rows are sorted by expert,
// stably:
//   offsets i32 [experts + 1]   expert e has rows [offsets[e], offsets[e + 1])
//   rows    i32 [choices]       the choice that a row is of
//   places  i32 [choices]       the row of a choice: places[rows[r]] = r
//
// A `Shape` describes the problem by constants:
//   int tokens, chosen, experts, columns;
//   int tile, digitBits;   of the sort, as in scatter_add.cuh; 2^digitBits is more than experts
//
// Experts outside of [0, experts) must not occur. Sums are in the order of j, so that results do
// not depend on the order of blocks. All kernels have blocks of 256 threads.
#pragma once

#include "lmc/expert_gemm.cuh"
#include "lmc/scatter_add.cuh"

namespace lmc {

template <typename Shape> struct ExpertRows {
  static constexpr int choices = Shape::tokens * Shape::chosen;
  using Sort = TokenSort<choices, Shape::experts, Shape::tile, Shape::digitBits>;

  // Sets counts[tile, expert] to the number of choices of the tile that are of the expert; u32
  // [tiles, 2^digitBits]. Grid: Sort::kTiles blocks, with Sort::kSharedBytes of shared memory.
  __device__ static void count(const i32 *experts, u32 *counts) {
    Sort::template count<0>(experts, counts);
  }

  // Computes offsets, rows and places from the counts. Grid: Sort::kTiles blocks, with
  // Sort::kSharedBytes + 32 of shared memory.
  __device__ static void sort(const i32 *experts, const u32 *counts, i32 *offsets, i32 *rows,
                              i32 *places) {
    Sort::clearCounters();
    u32 key[Sort::kItems], ranks[Sort::kItems];
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item) {
      const int at = Sort::position(item);
      key[item] = at < choices ? Sort::template loadKey<0>(experts, at) : 0;
    }
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item)
      ranks[item] = Sort::rank(key[item], Sort::position(item) < choices);
    __syncthreads();
    Sort::findPlaces(counts, reinterpret_cast<u32 *>(sharedMemory() + Sort::kSharedBytes));
    // In the first tile, the first warp's place of an expert is the expert's first row.
    if (blockIdx.x == 0)
      for (int expert = int(threadIdx.x); expert <= Shape::experts; expert += kScatterThreads)
        storeOne(offsets + expert, expert < Shape::experts
                                       ? i32(reinterpret_cast<const u32 *>(sharedMemory())[expert])
                                       : i32(choices));
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item) {
      const int at = Sort::position(item);
      if (at >= choices)
        continue;
      const u32 place = Sort::counters()[key[item]] + ranks[item];
      storeOne(rows + place, i32(at));
      storeOne(places + at, i32(place));
    }
  }
};

namespace experts {

constexpr int kWarps = kThreads / 32;

// How many elements of T a lane reads at a time: at most 16 bytes, and a row is whole vectors.
template <typename T, int Columns>
constexpr int kWidth = VectorWidth<Columns, 16 / int(sizeof(T))>::value;

template <typename T> struct RealOf { using Type = float; };
template <> struct RealOf<double> { using Type = double; };

// Returns the row that this warp works on.
__device__ inline int warpRow() { return int(blockIdx.x) * kWarps + int(threadIdx.x) / 32; }

} // namespace experts

// to[r, :] = x[rows[r] / chosen, :]: x [tokens, columns], to [choices, columns]. Grid:
// ceilDiv(choices, 8).
template <typename Shape, typename T>
__device__ inline void takeRows(const T *x, const i32 *rows, T *to) {
  using namespace experts;
  const int row = warpRow();
  if (row >= Shape::tokens * Shape::chosen)
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const T *from = x + i64(loadOne(rows + row) / Shape::chosen) * Shape::columns;
  for (int column = int(threadIdx.x) % 32 * width; column < Shape::columns; column += 32 * width)
    store(to + i64(row) * Shape::columns + column, load<width>(from + column));
}

// out[t, :] = sum over j of weights[t, j] y[places[t, j], :], or without weights if `Weighted` is
// false: y [choices, columns], weights f32 (f64 for f64) [tokens, chosen], out [tokens, columns].
// The second is the gradient of takeRows. Grid: ceilDiv(tokens, 8).
template <typename Shape, bool Weighted, typename T>
__device__ inline void combineRows(const T *y, const typename experts::RealOf<T>::Type *weights,
                                   const i32 *places, T *out) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  const int token = warpRow();
  if (token >= Shape::tokens)
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  for (int column = int(threadIdx.x) % 32 * width; column < Shape::columns; column += 32 * width) {
    Real sum[width] = {};
#pragma unroll 4
    for (int j = 0; j < Shape::chosen; ++j) {
      const int choice = token * Shape::chosen + j;
      const Vec<T, width> row =
          load<width>(y + i64(loadOne(places + choice)) * Shape::columns + column);
      Real weight = 1;
      if constexpr (Weighted)
        weight = loadOne(weights + choice);
#pragma unroll
      for (int i = 0; i < width; ++i)
        sum[i] += Weighted ? weight * toReal(row.at[i]) : toReal(row.at[i]);
    }
    Vec<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i)
      fromReal(result.at[i], sum[i]);
    store(out + i64(token) * Shape::columns + column, result);
  }
}

// The gradients of combineRows: dy[r, :] = weights[c] dout[t, :] and dweights[c] = dout[t, :] .
// y[r, :], where c = rows[r] is the row's choice and t its token. Grid: ceilDiv(choices, 8).
template <typename Shape, typename T>
__device__ inline void
combineRowsGrad(const T *dout, const T *y, const typename experts::RealOf<T>::Type *weights,
                const i32 *rows, T *dy, typename experts::RealOf<T>::Type *dweights) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  const int row = warpRow();
  if (row >= Shape::tokens * Shape::chosen)
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const int choice = loadOne(rows + row), lane = int(threadIdx.x) % 32;
  const Real weight = loadOne(weights + choice);
  Real sum = 0;
  for (int column = lane * width; column < Shape::columns; column += 32 * width) {
    const Vec<T, width> gradient =
        load<width>(dout + i64(choice / Shape::chosen) * Shape::columns + column);
    const Vec<T, width> value = load<width>(y + i64(row) * Shape::columns + column);
    Vec<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Real d = toReal(gradient.at[i]);
      sum += d * toReal(value.at[i]);
      fromReal(result.at[i], weight * d);
    }
    store(dy + i64(row) * Shape::columns + column, result);
  }
#pragma unroll
  for (int other = 16; other > 0; other /= 2)
    sum += __shfl_xor_sync(kFullWarp, sum, other);
  if (lane == 0)
    storeOne(dweights + choice, sum);
}

} // namespace lmc
