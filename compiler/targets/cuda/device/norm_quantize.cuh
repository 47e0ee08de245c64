// An RMS norm whose result is cast to 8-bit floats along rows or along columns, and is not stored:
// y = x w r, r = 1 / sqrt(mean(x^2) + eps) of each row.
//
// `Shape` describes y, as in quantize_blocks.cuh. normQuantizeRows() also needs its constant float eps.
#pragma once

#include "lmc/quantize_blocks.cuh"
#include "lmc/reduce.cuh"

namespace lmc {

namespace casts {

template <typename T>
__device__ inline Vec<T, 4> normed(const Vec<T, 4> &x, const Vec<float, 4> &weight, float r) {
  Vec<T, 4> y;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    round(y.at[i], toReal(x.at[i]) * r * weight.at[i]);
  return y;
}

} // namespace casts

// A thread block has a row, which it reads once. Grid: rows (x); 256 threads, 32 bytes of shared memory.
template <typename Shape, typename T>
__device__ void normQuantizeRows(const T *x, const float *weight, u8 *codes, float *scales,
                                 float *reciprocals) {
  using Format = typename Shape::Format;
  constexpr int kThreads = 256, kParts = (Shape::columns + 4 * kThreads - 1) / (4 * kThreads);
  const i64 row = blockIdx.x;
  const int first = 4 * int(threadIdx.x);
  Vec<T, 4> elements[kParts];
  float squares = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int column = first + part * (4 * kThreads);
    elements[part] = {};
    if (column < Shape::columns)
      elements[part] = load<4>(x + row * Shape::columns + column);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float element = toReal(elements[part].at[i]);
      squares += element * element;
    }
  }
  float *totals = reinterpret_cast<float *>(sharedMemory());
  putWarpTotal<Add>(totals, squares);
  __syncthreads();
  squares = blockTotal<Add, kThreads / 32>(totals);
  const float r = 1.0f / sqrtf(squares * (1.0f / float(Shape::columns)) + Shape::eps);
  // A warp has 128 elements of a part: they have a scale.
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const int column = first + part * (4 * kThreads);
    if (column >= Shape::columns)
      break;
    const Vec<T, 4> y = casts::normed(elements[part], load<4>(weight + column), r);
    const float scale = scaleOf<Format>(largestOfWarp(largestOf(y)));
    store<4>(codes + row * Shape::columns + column, encode<Format>(y, 1.0f / scale));
    if (threadIdx.x % 32 == 0)
      storeOne(scales + i64(column / 128) * Shape::rows + row, scale);
  }
  if (threadIdx.x == 0)
    storeOne(reciprocals + row, r);
}

// Grid, threads and shared memory are those of quantizeColumns().
template <typename Shape, typename T>
__device__ void normQuantizeColumns(const T *x, const float *weight, const float *reciprocals,
                                    u8 *codes, float *scales) {
  using Tile = Transpose<Shape>;
  Vec<T, 4> elements[Tile::kSquares][4];
  Tile::loadSquares(x, elements);
  const Vec<float, 4> weights = load<4>(weight + Tile::firstColumn() + 4 * Tile::lane());
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square) {
    // A warp reads the same four reciprocals.
    const Vec<float, 4> r = load<4>(reciprocals + Tile::firstRow() +
                                    4 * (Tile::warp() + square * Tile::kWarps));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      elements[square][i] = casts::normed(elements[square][i], weights, r.at[i]);
  }
  encodeColumns<Shape>(elements, Tile::firstColumn(), codes, scales);
}

} // namespace lmc
