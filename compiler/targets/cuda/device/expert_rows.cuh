// Moves the rows of tokens to their experts and back. Each of `tokens` tokens has chosen `chosen`
// experts; choice c = t chosen + j is the j-th of token t. Rows are sorted by expert, stably:
//   offsets i32 [experts + 1]   expert e has rows [offsets[e], offsets[e + 1])
//   rows    i32 [held]          the choice to which a row belongs; -1: none
//   places  i32 [choices]       the row of a choice: places[rows[r]] = r; -1: none
//
// With several `groups`, there are groups * experts experts in all. Only one group is sorted: the
// experts from experts * (rank mod groups) on, where `rank` is a scalar in memory. Of the sorted
// rows, `held` rows are kept, from row `first` on; `offsets` count from row `first`.
//
// A `Shape` describes the problem by constants:
//   int tokens, chosen, experts, columns;
//   int groups, first, held;
//   int tile, digitBits;   of the sort, as in scatter_add.cuh; 2^digitBits is more than experts
//
// Experts outside of [0, groups experts) must not occur. Sums are in the order of j, so that
// results do not depend on the order of blocks. All kernels have blocks of 256 threads.
#pragma once

#include "lmc/expert_gemm.cuh"
#include "lmc/scatter_add.cuh"

namespace lmc {

template <typename Shape> struct ExpertRows {
  static constexpr int choices = Shape::tokens * Shape::chosen;
  using Sort = TokenSort<choices, Shape::experts, Shape::tile, Shape::digitBits>;

  // Sets counts[tile, expert], u32 [tiles, 2^digitBits], to the number of the tile's choices that
  // are this expert. Grid: Sort::kTiles blocks, with Sort::kSharedBytes of shared memory.
  template <typename Real>
  __device__ static void count(const i32 *experts, const Real *rank, u32 *counts) {
    Sort::template count<0>(experts, counts, leastOf(rank));
  }

  // Returns the first expert of the group that is sorted.
  template <typename Real> __device__ static i32 leastOf(const Real *rank) {
    if constexpr (Shape::groups > 1)
      return i32(loadOne(rank)) % Shape::groups * Shape::experts;
    return 0;
  }

  // Computes offsets, rows and places from the counts. Grid: Sort::kTiles blocks, with
  // Sort::kSharedBytes + 32 of shared memory.
  template <typename Real>
  __device__ static void sort(const i32 *experts, const Real *rank, const u32 *counts,
                              i32 *offsets, i32 *rows, i32 *places) {
    const i32 least = leastOf(rank);
    Sort::clearCounters();
    u32 key[Sort::kItems], ranks[Sort::kItems];
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item) {
      const int at = Sort::position(item);
      key[item] = at < choices ? Sort::template loadKey<0>(experts, at, least) : 0;
    }
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item)
      ranks[item] = Sort::rank(key[item], Sort::position(item) < choices);
    __syncthreads();
    Sort::findPlaces(counts, reinterpret_cast<u32 *>(sharedMemory() + Sort::kSharedBytes));
    // In block 0, findPlaces() has set counter e of warp 0 to the index of expert e's first row.
    // A choice of an expert outside of the sorted group has the key Shape::experts and sorts last.
    if (blockIdx.x == 0)
      for (int expert = int(threadIdx.x); expert <= Shape::experts; expert += kScatterThreads) {
        const i32 row =
            i32(reinterpret_cast<const u32 *>(sharedMemory())[expert]) - Shape::first;
        storeOne(offsets + expert, row < 0 ? 0 : row > Shape::held ? Shape::held : row);
      }
#pragma unroll
    for (int item = 0; item < Sort::kItems; ++item) {
      const int at = Sort::position(item);
      if (at >= choices)
        continue;
      const i32 row = i32(Sort::counters()[key[item]] + ranks[item]) - Shape::first;
      const bool held = row >= 0 && row < Shape::held, own = key[item] < u32(Shape::experts);
      if (held)
        storeOne(rows + row, own ? i32(at) : -1);
      storeOne(places + at, held && own ? row : -1);
    }
  }
};

namespace experts {

constexpr int kWarps = kThreads / 32;

// The number of elements that a lane reads at a time: at most 16 bytes, and a divisor of `Columns`.
template <typename T, int Columns>
constexpr int kWidth = VectorWidth<Columns, 16 / int(sizeof(T))>::value;

template <typename T> struct RealOf { using Type = float; };
template <> struct RealOf<double> { using Type = double; };

__device__ inline float exponential(float x) { return expf(x); }
__device__ inline double exponential(double x) { return exp(x); }

__device__ inline int warpRow() { return int(blockIdx.x) * kWarps + int(threadIdx.x) / 32; }

} // namespace experts

// Sets to[r, :] = x[rows[r] / chosen, :], unless rows[r] is -1. Grid: ceilDiv(held, 8).
template <typename Shape, typename T>
__device__ inline void takeRows(const T *x, const i32 *rows, T *to) {
  using namespace experts;
  const int row = warpRow();
  if (row >= Shape::held)
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const int choice = loadOne(rows + row);
  if (choice < 0)
    return;
  const T *from = x + i64(choice / Shape::chosen) * Shape::columns;
  for (int column = int(threadIdx.x) % 32 * width; column < Shape::columns; column += 32 * width)
    store(to + i64(row) * Shape::columns + column, load<width>(from + column));
}

// Computes out[t, :] = sum over j of weights[t, j] y[places[t, j], :]. Skips terms with a place of
// -1. If `Weighted` is false, all weights are 1 (the gradient of takeRows). y [held, columns],
// weights f32 (f64 for f64) [tokens, chosen], out [tokens, columns]. Grid: ceilDiv(tokens, 8).
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
      const int place = loadOne(places + choice);
      if (place < 0)
        continue;
      const Vec<T, width> row = load<width>(y + i64(place) * Shape::columns + column);
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

// Computes the gradients of combineRows: dy[r, :] = weights[c] dout[t, :] and dweights[c] = dout[t,
// :] . y[r, :]. c = rows[r] is the choice of row r, and t is its token. Rows without a choice are
// not written; choices without a row get zeros. Grid: ceilDiv(held, 8).
template <typename Shape, typename T>
__device__ inline void
combineRowsGrad(const T *dout, const T *y, const typename experts::RealOf<T>::Type *weights,
                const i32 *rows, const i32 *places, T *dy,
                typename experts::RealOf<T>::Type *dweights) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  for (int choice = int(blockIdx.x) * kThreads + int(threadIdx.x);
       choice < Shape::tokens * Shape::chosen; choice += int(gridDim.x) * kThreads)
    if (loadOne(places + choice) < 0)
      storeOne(dweights + choice, Real(0));
  const int row = warpRow();
  if (row >= Shape::held)
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const int choice = loadOne(rows + row), lane = int(threadIdx.x) % 32;
  if (choice < 0)
    return;
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

// Computes y[r, :] = silu(x[r, :columns]) * x[r, columns:] for the rows r < offsets[experts], with
// silu(g) = g / (1 + exp(-g)): x [tokens, 2 columns], y [tokens, columns]. Grid: ceilDiv(tokens,
// 8).
template <typename Shape, typename T>
__device__ inline void expertSwiglu(const T *x, const i32 *offsets, T *y) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  const int row = warpRow();
  if (row >= Shape::tokens || row >= loadOne(offsets + Shape::experts))
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const T *from = x + i64(row) * 2 * Shape::columns;
  for (int column = int(threadIdx.x) % 32 * width; column < Shape::columns; column += 32 * width) {
    const Vec<T, width> gate = load<width>(from + column);
    const Vec<T, width> up = load<width>(from + Shape::columns + column);
    Vec<T, width> result;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Real g = toReal(gate.at[i]);
      fromReal(result.at[i], g * (1 / (1 + exponential(-g))) * toReal(up.at[i]));
    }
    store(y + i64(row) * Shape::columns + column, result);
  }
}

// Computes the gradient of expertSwiglu. With g and u, the halves of x[r, :], and s = 1 / (1 +
// exp(-g)), dx[r, :columns] = dy[r, :] u s (1 + g (1 - s)) and dx[r, columns:] = dy[r, :] g s.
// Grid: ceilDiv(tokens, 8).
template <typename Shape, typename T>
__device__ inline void expertSwigluGrad(const T *dy, const T *x, const i32 *offsets, T *dx) {
  using namespace experts;
  using Real = typename RealOf<T>::Type;
  const int row = warpRow();
  if (row >= Shape::tokens || row >= loadOne(offsets + Shape::experts))
    return;
  constexpr int width = kWidth<T, Shape::columns>;
  const i64 first = i64(row) * 2 * Shape::columns;
  for (int column = int(threadIdx.x) % 32 * width; column < Shape::columns; column += 32 * width) {
    const Vec<T, width> gradient = load<width>(dy + i64(row) * Shape::columns + column);
    const Vec<T, width> gate = load<width>(x + first + column);
    const Vec<T, width> up = load<width>(x + first + Shape::columns + column);
    Vec<T, width> dgate, dup;
#pragma unroll
    for (int i = 0; i < width; ++i) {
      const Real g = toReal(gate.at[i]), d = toReal(gradient.at[i]);
      const Real s = 1 / (1 + exponential(-g));
      fromReal(dgate.at[i], d * toReal(up.at[i]) * (s * (1 + g * (1 - s))));
      fromReal(dup.at[i], d * (g * s));
    }
    store(dx + first + column, dgate);
    store(dx + first + Shape::columns + column, dup);
  }
}

} // namespace lmc
