// Multiplies rows of 8-bit floats by the matrix of their expert (expert_gemm.cuh), with a scale for
// each block: 128 elements of a row of x, and 128 x 128 elements of a matrix.
//
// A `Shape` is that of expert_gemm.cuh, with multiples of 128 as inner and columns, and
//   bool isE4M3;   the format: E4M3, or E5M2
//   bool beside;   the matrices [columns, inner] lie one beside the other: w [columns, experts *
//                  inner], with scales [columns / 128, experts * inner / 128]
//
// xScales is f32 [inner / 128, rows]. wScales is f32 [experts * columns / 128, inner / 128], and
// with `transposed` [experts * inner / 128, columns / 128].
//
// Tensor cores of sm_90 keep about 14 bits of a sum of 8-bit floats (arXiv 2412.19437, section
// 3.5.2). So they sum up the products of one block. The threads multiply this sum by its scales, and
// add it in f32.
#pragma once

#include "lmc/expert_gemm.cuh"

namespace lmc {

namespace experts {

constexpr int kScaled = 128;

// Where the matrix of an expert and its scales are.
template <typename Shape> struct ScaledMatrix {
  static constexpr int kAcross = Shape::columns / kScaled, kDeep = Shape::inner / kScaled;
  // Elements from a row to the next, and scales from a row of tiles to the next.
  static constexpr int kPitch = Shape::beside       ? Shape::experts * Shape::inner
                                : Shape::transposed ? Shape::columns
                                                    : Shape::inner;
  static constexpr int kScalesPitch = kPitch / kScaled;

  const u8 *codes;
  const float *scales;

  __device__ ScaledMatrix(const u8 *w, const float *wScales, int expert)
      : codes(w + i64(expert) * Shape::inner * (Shape::beside ? 1 : Shape::columns)),
        scales(wScales + i64(expert) * kDeep * (Shape::beside ? 1 : kAcross)) {}

  // Returns the scale of a tile: that of block `across` of the columns, and of block `deep` of the
  // dimension that is summed over.
  __device__ float scaleAt(int across, int deep) const {
    return loadOne(scales + (Shape::transposed ? i64(deep) * kScalesPitch + across
                                               : i64(across) * kScalesPitch + deep));
  }
};

template <typename Shape> __device__ inline float decoded(u8 code) {
  if constexpr (Shape::isE4M3)
    return toFloat(e4m3{code});
  else
    return toFloat(e5m2{code});
}

} // namespace experts

// Computes y by warpgroups (only on sm_90a), without `transposed`: tiles of 128 x 128 elements, and
// Groups<128, Stages>::kSharedBytes of shared memory. Grid: tilesOf(rows, experts, kTile) * (columns
// / 128).
template <typename Shape, int Stages>
__device__ inline void expertScaledGemmGroups(const u8 *x, const u8 *w, const i32 *offsets,
                                              const float *xScales, const float *wScales, bf16 *y) {
  using namespace experts;
  using Matrix = ScaledMatrix<Shape>;
  using G = Groups<kScaled, Stages>;
  constexpr int N = kScaled, slices = Matrix::kDeep;
  static_assert(!Shape::transposed, "wgmma reads 8-bit floats along the dimension that is summed over");
  const Rows rows = rowsOf<Shape::experts, kTile>(offsets, int(blockIdx.x) / Matrix::kAcross);
  if (rows.first >= rows.end)
    return;
  const int across = int(blockIdx.x) % Matrix::kAcross;
  const Matrix matrix(w, wScales, rows.expert);
  const u32 tiles = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
  const u32 own = u32(threadIdx.x) / 128 * (G::kLeftBytes / 2);
  // A slice has 128 bytes of a row: 64 pairs of codes, which are copied as bf16 are.
  auto copy = [&](int slice) {
    if (slice < slices) {
      const u32 to = tiles + slice % Stages * G::kStageBytes;
      const int at = slice * G::kDeep;
      G::template copyAlong<kTile, Shape::inner / 2>(to, reinterpret_cast<const bf16 *>(x),
                                                     rows.first, rows.end, at, Shape::inner / 2);
      G::template copyAlong<N, Matrix::kPitch / 2>(
          to + G::kLeftBytes, reinterpret_cast<const bf16 *>(matrix.codes), across * N,
          Shape::columns, at, Shape::inner / 2);
    }
    copyAsyncCommit();
  };
#pragma unroll
  for (int stage = 0; stage < Stages - 1; ++stage)
    copy(stage);
  // A thread has elements of two rows.
  const int upper = rows.first + G::rowOf(0), lower = rows.first + G::rowOf(2);
  float d[N / 2] = {};
  for (int slice = 0; slice < slices; ++slice) {
    copyAsyncWait<Stages - 2>();
    seenByProducts();
    __syncthreads(); // the slice has arrived, and all warps have read the one before it
    const u32 a = tiles + slice % Stages * G::kStageBytes + own;
    const u32 b = tiles + slice % Stages * G::kStageBytes + G::kLeftBytes;
    GroupProducts products;
    float sum[N / 2];
    products.begin();
    products.addCodes<N, Shape::isE4M3, true>(sum, a, b);
#pragma unroll
    for (int k = 1; k < kScaled / 32; ++k)
      products.addCodes<N, Shape::isE4M3>(sum, a + 32 * k, b + 32 * k);
    products.commit();
    copy(slice + Stages - 1);
    const float scale = matrix.scaleAt(across, slice);
    const float *scales = xScales + i64(slice) * Shape::rows;
    const float above = upper < rows.end ? loadOne(scales + upper) * scale : 0.0f;
    const float below = lower < rows.end ? loadOne(scales + lower) * scale : 0.0f;
    products.finish(sum);
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      d[i] += sum[i] * (i / 2 % 2 ? below : above);
  }
  copyAsyncWait<0>();
  __syncthreads();
  G::template storeTile<Shape::columns>(d, y, rows.first, rows.end, across * N);
}

// Computes the same without tensor cores. Grid: tilesOf(rows, experts, kPlainTile) x (columns /
// kPlainTile).
template <typename Shape, typename T>
__device__ inline void expertScaledGemmPlain(const u8 *x, const u8 *w, const i32 *offsets,
                                             const float *xScales, const float *wScales, T *y) {
  using namespace experts;
  using Matrix = ScaledMatrix<Shape>;
  const Rows rows = rowsOf<Shape::experts, kPlainTile>(offsets, int(blockIdx.x));
  if (rows.first >= rows.end)
    return;
  const int column = int(blockIdx.y) * kPlainTile;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const Matrix matrix(w, wScales, rows.expert);
  float *a = reinterpret_cast<float *>(sharedMemory()), *b = a + 32 * 33;
  float d[4] = {};
  for (int deep = 0; deep < Matrix::kDeep; ++deep) {
    float sum[4] = {};
    for (int k = deep * kScaled; k < (deep + 1) * kScaled; k += 32) {
      for (int i = warp; i < 32; i += kThreads / 32) {
        const int row = rows.first + i;
        a[lane * 33 + i] =
            row < rows.end ? decoded<Shape>(loadOne(x + i64(row) * Shape::inner + k + lane)) : 0.0f;
        if constexpr (Shape::transposed)
          b[i * 33 + lane] =
              decoded<Shape>(loadOne(matrix.codes + i64(k + i) * Matrix::kPitch + column + lane));
        else
          b[lane * 33 + i] =
              decoded<Shape>(loadOne(matrix.codes + i64(column + i) * Matrix::kPitch + k + lane));
      }
      __syncthreads();
      addPlain(sum, a, b);
      __syncthreads();
    }
    const float scale = matrix.scaleAt(column / kScaled, deep);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = rows.first + warp + 8 * i;
      if (row < rows.end)
        d[i] += sum[i] * (loadOne(xScales + i64(deep) * Shape::rows + row) * scale);
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = rows.first + warp + 8 * i;
    if (row >= rows.end)
      continue;
    T value;
    fromReal(value, d[i]);
    storeOne(y + i64(row) * Shape::columns + column + lane, value);
  }
}

} // namespace lmc
