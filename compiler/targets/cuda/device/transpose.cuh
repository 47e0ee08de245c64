// The transpose of a matrix of 8-bit floats, and a cast to 8-bit floats that also writes the
// transpose.
//
// A thread block has a tile of 128 x 128 elements. A thread reads words of four elements of a row,
// turns squares of 4 x 4 elements, and keeps words of four elements of a column in shared memory.
// `Shape` has the constants int rows and columns. Grid: a block for each tile of 128 columns (x) and
// 128 rows (y), of kThreads threads, with kSharedBytes of shared memory.
#pragma once

#include "lmc/math.cuh"
#include "lmc/vector_io.cuh"

namespace lmc {

template <typename Shape> struct Transpose {
  static constexpr int kThreads = 256, kTile = 128;
  // A column of the tile has 32 words, and one more, so that the 32 threads of a warp, which write
  // words of 32 columns, use 32 banks. So do threads that read whole columns. Columns 4 l + i lie apart:
  // those with i = 0 come first.
  static constexpr int kWords = kTile / 4, kPitch = kWords + 1;
  static constexpr int kSharedBytes = kTile * kPitch * 4;

  using Word = Vec<u8, 4>;

  // Returns the index in shared memory of word `word` of a column.
  static __device__ int placeOf(int column, int word) {
    return (column % 4 * kWords + column / 4) * kPitch + word;
  }

  // Returns the elements of `row` from `column` on; zeros beyond the edge of the matrix.
  template <typename T> static __device__ Vec<T, 4> elementsAt(const T *x, i64 row, int column) {
    Vec<T, 4> elements = {};
    if (row >= Shape::rows || column >= Shape::columns)
      return elements;
    const T *from = x + row * Shape::columns + column;
    if constexpr (Shape::columns % 4 == 0)
      return load<4>(from);
    for (int i = 0; i < 4 && column + i < Shape::columns; ++i)
      elements.at[i] = loadOne(from + i);
    return elements;
  }

  // Stores N elements of a matrix with rows of `columns` elements, as far as it has them.
  template <int N>
  static __device__ void put(u8 *y, i64 row, i64 rows, int column, int columns,
                             const Vec<u8, N> &elements, bool whole) {
    if (row >= rows || column >= columns)
      return;
    u8 *to = y + row * columns + column;
    if (whole)
      return store<N>(to, elements);
    for (int i = 0; i < N && column + i < columns; ++i)
      storeOne(to + i, elements.at[i]);
  }

  // Returns the row and the column of the tile's first element.
  static __device__ i64 firstRow() { return i64(blockIdx.y) * kTile; }
  static __device__ int firstColumn() { return int(blockIdx.x) * kTile; }
  // The thread's squares: word w of four columns, for w = warp(), warp() + kWarps ...
  static constexpr int kWarps = kThreads / 32, kSquares = kWords / kWarps;
  static __device__ int lane() { return int(threadIdx.x) % 32; }
  static __device__ int warp() { return int(threadIdx.x) / 32; }

  // Loads the thread's squares.
  template <typename T>
  static __device__ void loadSquares(const T *x, Vec<T, 4> (&elements)[kSquares][4]) {
#pragma unroll
    for (int square = 0; square < kSquares; ++square)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        elements[square][i] = elementsAt(x, firstRow() + 4 * (warp() + square * kWarps) + i,
                                         firstColumn() + 4 * lane());
  }

  // Keeps a square, four words of four rows, in shared memory as word `word` of four columns.
  static __device__ void keepSquare(const Word (&rows)[4], int word) {
    u32 *tile = reinterpret_cast<u32 *>(sharedMemory());
#pragma unroll
    for (int i = 0; i < 4; ++i)
      keep(reinterpret_cast<u8 *>(tile + placeOf(4 * lane() + i, word)),
           Word{{rows[0].at[i], rows[1].at[i], rows[2].at[i], rows[3].at[i]}});
  }

  // Writes the transpose of the tile. wordOf(row, column) returns four elements of a row.
  template <typename WordOf> static __device__ void run(u8 *y, WordOf wordOf) {
#pragma unroll
    for (int word = warp(); word < kWords; word += kWarps) {
      Word rows[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        rows[i] = wordOf(firstRow() + 4 * word + i, firstColumn() + 4 * lane());
      keepSquare(rows, word);
    }
    writeColumns(y, firstColumn());
  }

  // Writes the columns of the tile that begins at column `firstColumn`, as rows of y. keepSquare() has
  // kept all its squares.
  static __device__ void writeColumns(u8 *y, int firstColumn) {
    const u32 *tile = reinterpret_cast<const u32 *>(sharedMemory());
    __syncthreads();
    // Eight threads write a column, 16 elements each; their words have 32 banks.
#pragma unroll
    for (int next = int(threadIdx.x); next < kTile * 8; next += kThreads) {
      const int place = next / 8, part = next % 8;
      const int column = place % kWords * 4 + place / kWords;
      Vec<u8, 16> elements;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Word word =
            kept<4>(reinterpret_cast<const u8 *>(tile + placeOf(column, 4 * part + i)));
#pragma unroll
        for (int j = 0; j < 4; ++j)
          elements.at[4 * i + j] = word.at[j];
      }
      put(y, firstColumn + column, Shape::columns, int(firstRow()) + 16 * part, Shape::rows,
          elements, Shape::rows % 16 == 0);
    }
  }
};

// y[j, i] = x[i, j].
template <typename Shape> __device__ void transpose(const u8 *x, u8 *y) {
  using Tile = Transpose<Shape>;
  Tile::run(y, [=](i64 row, int column) { return Tile::elementsAt(x, row, column); });
}

// codes = round(x / scale), and its transpose. `Round` is a function from float to an 8-bit float.
template <typename Shape, typename T, typename Round>
__device__ void quantizeTransposed(const T *x, const float *scale, u8 *codes, u8 *transposed,
                                   Round round) {
  using Tile = Transpose<Shape>;
  const float inverse = 1.0f / loadOne(scale); // exact: a power of two
  Tile::run(transposed, [=](i64 row, int column) {
    const Vec<T, 4> elements = Tile::elementsAt(x, row, column);
    typename Tile::Word word;
#pragma unroll
    for (int i = 0; i < 4; ++i)
      word.at[i] = round(toReal(elements.at[i]) * inverse).bits;
    Tile::put(codes, row, Shape::rows, column, Shape::columns, word, Shape::columns % 4 == 0);
    return word;
  });
}

} // namespace lmc
