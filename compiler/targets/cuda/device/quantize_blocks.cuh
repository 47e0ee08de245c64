// Casts to 8-bit floats with a scale for each block of 128 elements: of a row, of a column (whose
// codes become a row), or of a tile of 128 x 128. `Shape` has the constants int rows and columns,
// of x, pitch and transposedPitch, of the scales of tiles, and a type Format.
#pragma once

#include "lmc/transpose.cuh"

namespace lmc {

// The 8-bit formats. kExponent: the largest number is 1.75 * 2^kExponent.
struct FormatE4M3 {
  static constexpr int kExponent = 8;
  static __device__ u8 code(float x) { return toE4M3(x).bits; }
};
struct FormatE5M2 {
  static constexpr int kExponent = 15;
  static __device__ u8 code(float x) { return toE5M2(x).bits; }
};

// Returns the smallest power of two s, 2^-126 or more, with largest / s <= the largest number of
// the format; `largest` itself if it is infinite or NaN.
template <typename Format> __device__ inline float scaleOf(float largest) {
  const u32 bits = __float_as_uint(largest);
  if (!(bits < 0x7f800000u))
    return largest;
  // Adding this carries into the exponent where the mantissa is above 1.75.
  const int exponent = int((bits + 0x1fffffu) >> 23) - Format::kExponent;
  return __uint_as_float(u32(exponent > 1 ? exponent : 1) << 23);
}

namespace casts {
// Rounds what a cast computes.
__device__ inline void round(float &to, float x) { to = x; }
__device__ inline void round(bf16 &to, float x) { to = toBf16(x); }
} // namespace casts

template <typename T, int N> __device__ inline float largestOf(const Vec<T, N> &elements) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
    largest = maximum(fabsf(toReal(elements.at[i])), largest);
  return largest;
}

// Returns the largest of the warp's values.
__device__ inline float largestOfWarp(float value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    value = maximum(value, __shfl_xor_sync(0xffffffffu, value, step));
  return value;
}

template <typename Format, typename T>
__device__ inline Vec<u8, 4> encode(const Vec<T, 4> &elements, float inverse) {
  Vec<u8, 4> codes;
#pragma unroll
  for (int i = 0; i < 4; ++i)
    codes.at[i] = Format::code(toReal(elements.at[i]) * inverse);
  return codes;
}

// A warp casts 128 elements of a row, elementsAt(row, column) from a column on. Grid: groups of 8 rows
// (x), and blocks of a row (y); 256 threads.
template <typename Shape, typename ElementsAt>
__device__ inline void encodeRows(ElementsAt elementsAt, u8 *codes, float *scales) {
  using Format = typename Shape::Format;
  const int lane = int(threadIdx.x) % 32, column = int(blockIdx.y) * 128 + 4 * lane;
  const i64 row = i64(blockIdx.x) * 8 + int(threadIdx.x) / 32;
  if (row >= Shape::rows)
    return;
  const auto elements = elementsAt(row, column);
  const float scale = scaleOf<Format>(largestOfWarp(largestOf(elements)));
  store<4>(codes + row * Shape::columns + column, encode<Format>(elements, 1.0f / scale));
  if (lane == 0)
    storeOne(scales + i64(blockIdx.y) * Shape::rows + row, scale);
}

template <typename Shape, typename T>
__device__ void quantizeRows(const T *x, u8 *codes, float *scales) {
  encodeRows<Shape>(
      [=](i64 row, int column) { return load<4>(x + row * Shape::columns + column); }, codes,
      scales);
}

// Writes the codes of a tile's columns, as rows, and their scales. `elements` are the thread's squares
// of the tile, whose first column is `firstColumn`.
template <typename Shape, typename T>
__device__ inline void
encodeColumns(const Vec<T, 4> (&elements)[Transpose<Shape>::kSquares][4], int firstColumn,
              u8 *codes, float *scales) {
  using Tile = Transpose<Shape>;
  using Format = typename Shape::Format;
  float largest[4] = {};
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        largest[j] = maximum(fabsf(toReal(elements[square][i].at[j])), largest[j]);
  // Of each warp: the largest elements of 128 columns.
  float *all = reinterpret_cast<float *>(sharedMemory() + Tile::kSharedBytes);
  keep<4>(all + Tile::warp() * Tile::kTile + 4 * Tile::lane(),
          Vec<float, 4>{{largest[0], largest[1], largest[2], largest[3]}});
  __syncthreads();
  float inverse[4];
#pragma unroll
  for (int j = 0; j < 4; ++j)
    largest[j] = 0;
#pragma unroll
  for (int warp = 0; warp < Tile::kWarps; ++warp) {
    const Vec<float, 4> other = kept<4>(all + warp * Tile::kTile + 4 * Tile::lane());
#pragma unroll
    for (int j = 0; j < 4; ++j)
      largest[j] = maximum(other.at[j], largest[j]);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float scale = scaleOf<Format>(largest[j]);
    inverse[j] = 1.0f / scale;
    const int column = firstColumn + 4 * Tile::lane() + j;
    if (Tile::warp() == 0 && column < Shape::columns)
      storeOne(scales + i64(blockIdx.y) * Shape::columns + column, scale);
  }
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square) {
    typename Tile::Word rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j)
        rows[i].at[j] = Format::code(toReal(elements[square][i].at[j]) * inverse[j]);
    Tile::keepSquare(rows, Tile::warp() + square * Tile::kWarps);
  }
  Tile::writeColumns(codes, firstColumn);
}

// Casts columns, whose codes become rows. Grid and threads are those of transpose(), with
// kSharedBytes + 4 KiB of shared memory.
template <typename Shape, typename T>
__device__ void quantizeColumns(const T *x, u8 *codes, float *scales) {
  Vec<T, 4> elements[Transpose<Shape>::kSquares][4];
  Transpose<Shape>::loadSquares(x, elements);
  encodeColumns<Shape>(elements, Transpose<Shape>::firstColumn(), codes, scales);
}

// Writes the codes of a tile's rows, and those of its columns as encodeColumns() does. A warp has
// whole rows of the tile.
template <typename Shape, typename T>
__device__ inline void
encodeRowsColumns(const Vec<T, 4> (&elements)[Transpose<Shape>::kSquares][4], int firstColumn,
                  u8 *codes, float *scales, u8 *transposed, float *transposedScales) {
  using Tile = Transpose<Shape>;
  using Format = typename Shape::Format;
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const i64 row = Tile::firstRow() + 4 * (Tile::warp() + square * Tile::kWarps) + i;
      const float scale = scaleOf<Format>(largestOfWarp(largestOf(elements[square][i])));
      store<4>(codes + row * Shape::columns + firstColumn + 4 * Tile::lane(),
               encode<Format>(elements[square][i], 1.0f / scale));
      if (Tile::lane() == 0)
        storeOne(scales + i64(firstColumn / 128) * Shape::rows + row, scale);
    }
  encodeColumns<Shape>(elements, firstColumn, transposed, transposedScales);
}

// Casts rows, and columns as quantizeColumns() does.
template <typename Shape, typename T>
__device__ void quantizeRowsColumns(const T *x, u8 *codes, float *scales, u8 *transposed,
                                    float *transposedScales) {
  Vec<T, 4> elements[Transpose<Shape>::kSquares][4];
  Transpose<Shape>::loadSquares(x, elements);
  encodeRowsColumns<Shape>(elements, Transpose<Shape>::firstColumn(), codes, scales, transposed,
                           transposedScales);
}

// Returns the largest of the thread block's values. `all` is shared memory, float [8].
__device__ inline float largestOfBlock(float value, float *all) {
  value = largestOfWarp(value);
  if (threadIdx.x % 32 == 0)
    keep<1>(all + threadIdx.x / 32, Vec<float, 1>{{value}});
  __syncthreads();
  value = 0;
#pragma unroll
  for (int warp = 0; warp < 8; ++warp)
    value = maximum(kept<1>(all + warp).at[0], value);
  return value;
}

// Stores the scale of tile `at` of a row of `tiles` tiles. The last tile of a row also fills what no
// tile has, up to `pitch`.
__device__ inline void storeScale(float *row, float scale, int at, int tiles, int pitch) {
  const int end = at + 1 == tiles ? pitch : at + 1;
  for (int place = at + int(threadIdx.x); place < end; place += int(blockDim.x))
    storeOne(row + place, place == at ? scale : 1.0f);
}

// Rounds f32 to bf16 if Shape::rounded.
template <typename Shape, typename T, int N> __device__ inline Vec<T, N> roundedBy(Vec<T, N> x) {
  if constexpr (Shape::rounded && sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      x.at[i] = toFloat(toBf16(x.at[i]));
  }
  return x;
}

// A thread block has a tile. Grid: tiles across (x) and down (y); 256 threads, 128 bytes of shared
// memory. `Shape` has the constant bool rounded.
template <typename Shape, typename T>
__device__ void quantizeTiles(const T *x, u8 *codes, float *scales) {
  using Format = typename Shape::Format;
  constexpr int kWarps = 8, kRows = 128 / kWarps;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const i64 first =
      (i64(blockIdx.y) * 128 + warp) * Shape::columns + int(blockIdx.x) * 128 + 4 * lane;
  constexpr i64 kStep = i64(kWarps) * Shape::columns;
  Vec<T, 4> elements[kRows];
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
    elements[i] = roundedBy<Shape>(load<4>(x + first + i * kStep));
    largest = maximum(largestOf(elements[i]), largest);
  }
  const float scale =
      scaleOf<Format>(largestOfBlock(largest, reinterpret_cast<float *>(sharedMemory())));
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    store<4>(codes + first + i * kStep, encode<Format>(elements[i], 1.0f / scale));
  storeScale(scales + i64(blockIdx.y) * Shape::pitch, scale, int(blockIdx.x), Shape::columns / 128,
             Shape::pitch);
}

// Casts tiles, and writes the codes of both x and its transpose. Grid and threads are those of
// transpose(), with kSharedBytes + 128 bytes of shared memory. `Shape` has the constant bool rounded.
template <typename Shape, typename T>
__device__ void quantizeTilesBoth(const T *x, u8 *codes, float *scales, u8 *transposed,
                                  float *transposedScales) {
  using Tile = Transpose<Shape>;
  using Format = typename Shape::Format;
  Vec<T, 4> elements[Tile::kSquares][4];
  float largest = 0;
  Tile::loadSquares(x, elements);
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      elements[square][i] = roundedBy<Shape>(elements[square][i]);
      largest = maximum(largestOf(elements[square][i]), largest);
    }
  const float scale = scaleOf<Format>(largestOfBlock(
      largest, reinterpret_cast<float *>(sharedMemory() + Tile::kSharedBytes)));
#pragma unroll
  for (int square = 0; square < Tile::kSquares; ++square) {
    const int word = Tile::warp() + square * Tile::kWarps;
    typename Tile::Word rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      rows[i] = encode<Format>(elements[square][i], 1.0f / scale);
      store<4>(codes + (Tile::firstRow() + 4 * word + i) * Shape::columns + Tile::firstColumn() +
                   4 * Tile::lane(),
               rows[i]);
    }
    Tile::keepSquare(rows, word);
  }
  Tile::writeColumns(transposed, Tile::firstColumn());
  storeScale(transposedScales + i64(blockIdx.x) * Shape::transposedPitch, scale, int(blockIdx.y),
             Shape::rows / 128, Shape::transposedPitch);
  storeScale(scales + i64(blockIdx.y) * Shape::pitch, scale, int(blockIdx.x), Shape::columns / 128,
             Shape::pitch);
}

} // namespace lmc
