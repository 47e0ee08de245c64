// SwiGLU, or its gradient, whose result is cast to 8-bit floats along rows, along columns or both, and
// is not stored itself. gu = [g | u] has rows of 2 width elements, d and a of width.
//
//   swigluQuantize, swigluQuantizeRows, swigluQuantizeColumns:  a = silu(g) u
//   swigluGradQuantize:  [dg | du], dg = d u s (1 + g (1 - s)), du = d g s, s = 1 / (1 + e^-g)
//
// `Shape` is that of the result in quantize_blocks.cuh, with the constant int width. Grid: tiles of
// 128 columns of a (x) and 128 rows (y); threads and shared memory are those of quantizeColumns(), and
// more for the gradient.
#pragma once

#include "lmc/quantize_blocks.cuh"
#include "lmc/swiglu.cuh"

namespace lmc {

namespace casts {

// Calls each(square, i, row, column) for the first of the elements that a thread has of a row.
template <typename Shape, typename Each> __device__ inline void forSquares(Each each) {
  using Tile = Transpose<Shape>;
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      each(square, i, Tile::firstRow() + 4 * (Tile::warp() + square * Tile::kWarps) + i,
           Tile::firstColumn() + 4 * Tile::lane());
}

// Returns four elements of a row of a.
template <typename Shape, typename T>
__device__ inline Vec<T, 4> swigluAt(const T *gu, i64 row, int column) {
  const T *from = gu + row * (2 * Shape::width) + column;
  const Vec<T, 4> gates = load<4>(from), ups = load<4>(from + Shape::width);
  Vec<T, 4> a;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float g = toReal(gates.at[j]);
    round(a.at[j], g * products::sigmoid(g) * toReal(ups.at[j]));
  }
  return a;
}

// Computes the elements of a that a thread has of a tile.
template <typename Shape, typename T>
__device__ inline void swigluTile(const T *gu, Vec<T, 4> (&a)[Transpose<Shape>::kSquares][4]) {
  forSquares<Shape>([&](int square, int i, i64 row, int column) {
    a[square][i] = swigluAt<Shape>(gu, row, column);
  });
}

} // namespace casts

// Grid and threads are those of quantizeRows().
template <typename Shape, typename T>
__device__ void swigluQuantizeRows(const T *gu, u8 *codes, float *scales) {
  encodeRows<Shape>(
      [=](i64 row, int column) { return casts::swigluAt<Shape>(gu, row, column); }, codes, scales);
}

template <typename Shape, typename T>
__device__ void swigluQuantizeColumns(const T *gu, u8 *codes, float *scales) {
  Vec<T, 4> a[Transpose<Shape>::kSquares][4];
  casts::swigluTile<Shape>(gu, a);
  encodeColumns<Shape>(a, Transpose<Shape>::firstColumn(), codes, scales);
}

template <typename Shape, typename T>
__device__ void swigluQuantize(const T *gu, u8 *codes, float *scales, u8 *transposed,
                               float *transposedScales) {
  Vec<T, 4> a[Transpose<Shape>::kSquares][4];
  casts::swigluTile<Shape>(gu, a);
  encodeRowsColumns<Shape>(a, Transpose<Shape>::firstColumn(), codes, scales, transposed,
                           transposedScales);
}

// The shared memory has that of quantizeColumns(), and then du of the tile: a thread has too few
// registers for dg and du of all its elements.
template <typename Shape, typename T>
__device__ void swigluGradQuantize(const T *d, const T *gu, u8 *codes, float *scales,
                                   u8 *transposed, float *transposedScales) {
  using Tile = Transpose<Shape>;
  constexpr int kColumnBytes = Tile::kSharedBytes + Tile::kWarps * Tile::kTile * 4;
  Vec<T, 4> elements[Tile::kSquares][4];
  T *const own = reinterpret_cast<T *>(sharedMemory() + kColumnBytes) + 4 * threadIdx.x;
  auto placeOf = [&](int square, int i) { return own + (4 * square + i) * (4 * Tile::kThreads); };
  casts::forSquares<Shape>([&](int square, int i, i64 row, int column) {
    const T *from = gu + row * (2 * Shape::width) + column;
    const Vec<T, 4> gates = load<4>(from), ups = load<4>(from + Shape::width);
    const Vec<T, 4> gradients = load<4>(d + row * Shape::width + column);
    Vec<T, 4> du;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float g = toReal(gates.at[j]), s = products::sigmoid(g), dy = toReal(gradients.at[j]);
      casts::round(elements[square][i].at[j],
                   dy * toReal(ups.at[j]) * (s * (1.0f + g * (1.0f - s))));
      casts::round(du.at[j], dy * (g * s));
    }
    keep<4>(placeOf(square, i), du);
  });
  const int column = Tile::firstColumn();
  encodeRowsColumns<Shape>(elements, column, codes, scales, transposed, transposedScales);
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      elements[square][i] = kept<4>(placeOf(square, i));
  __syncthreads(); // all threads have read the columns of dg
  encodeRowsColumns<Shape>(elements, Shape::width + column, codes, scales, transposed,
                           transposedScales);
}

} // namespace lmc
