// The register-blocked matrix product that all CPU kernels use.
//
//   C[rows, columns] = (C +) A[rows, depth] B[depth, columns]
//
// C is divided into register tiles: kTileRows rows x 2 registers, whose sums stay in registers over
// the whole depth. B and C are row-major, and `columns` is a multiple of the elements of a
// register. A may be row-major or column-major.
#pragma once

#include "runtime/device/cpu/kernels/Kernels.h"
#include "runtime/device/cpu/kernels/Vector.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace lmc::cpu::LMC_ISA {

// A tile's sums fill 12 of 16 registers, or 24 of 32, to hide the latency of a fused multiply-add.
inline constexpr int kTileRows = kRegisters == 32 ? 12 : 6;
template <typename R> inline constexpr int kTileColumns = 2 * kWidth<R>;

enum class Layout { RowMajor, ColumnMajor };

// Computes one register tile. It is not inlined, else each caller would repeat all shapes' code.
template <typename R, Layout kLayout, int kRows, int kVectors>
__attribute__((noinline)) void tile(int64_t depth, const R *a, int64_t lda, const R *b, int64_t ldb, R *c,
                     int64_t ldc, bool add) {
  V<R> sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      sums[r][v] = V<R>{};
  for (int64_t k = 0; k < depth; ++k) {
    V<R> right[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      right[v] = load(b + v * kWidth<R>);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      V<R> left = splat(kLayout == Layout::RowMajor ? a[r * lda + k] : a[k * lda + r]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] += left * right[v];
    }
    b += ldb;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      R *to = c + r * ldc + v * kWidth<R>;
      store(to, add ? load(to) + sums[r][v] : sums[r][v]);
    }
}

// Starts to fetch a tile of C into the caches. The tile arrives while its sums are computed.
template <typename R> LMC_INLINE void fetchTile(const R *c, int64_t ldc, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r)
    for (int line = 0; line < kTileColumns<R> * int(sizeof(R)) / 64; ++line)
      __builtin_prefetch(reinterpret_cast<const char *>(c + r * ldc) + 64 * line, 1, 3);
}

// Copies a full tile to C. If the instruction set allows it, the stores bypass the caches.
template <typename R> LMC_INLINE void streamTile(const R *from, R *c, int64_t ldc, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r, from += kTileColumns<R>, c += ldc)
#if defined(__AVX512F__)
    for (int line = 0; line < 2; ++line)
      _mm512_stream_si512(reinterpret_cast<__m512i *>(c + line * kWidth<R>),
                          _mm512_loadu_si512(from + line * kWidth<R>));
#else
    memcpy(c, from, kTileColumns<R> * sizeof(R));
#endif
}

// After endStream(), other threads see what streamTile() wrote.
LMC_INLINE void endStream() {
#if defined(__AVX512F__)
  _mm_sfence();
#endif
}

// Calls tile() for a number of rows, 1 to kTileRows, that is known only at run time.
template <typename R, Layout kLayout, int kVectors, int kRows = kTileRows>
LMC_INLINE void tileOf(int rows, int64_t depth, const R *a, int64_t lda, const R *b, int64_t ldb,
                       R *c, int64_t ldc, bool add) {
  if constexpr (kRows == 1) {
    tile<R, kLayout, 1, kVectors>(depth, a, lda, b, ldb, c, ldc, add);
  } else {
    if (rows == kRows)
      tile<R, kLayout, kRows, kVectors>(depth, a, lda, b, ldb, c, ldc, add);
    else
      tileOf<R, kLayout, kVectors, kRows - 1>(rows, depth, a, lda, b, ldb, c, ldc, add);
  }
}

// Computes the product of packed panels. Calls tile(rows, a, b, c, ldc, add) for each tile of C;
// `a` and `b` are the first elements of the tile's panels. `depth` is the number of packed elements
// in a row of a panel of A, or a column of a panel of B.
template <typename Packed, typename R, typename Tile>
LMC_INLINE void multiplyPanels(const Packed *a, const Packed *b, int64_t rows, int64_t columns,
                               int64_t depth, R *c, int64_t ldc, Sums mode, Prefetch &prefetch,
                               Tile tile) {
  const bool add = mode == Sums::Add;
  constexpr int64_t kColumns = kTileColumns<R>;
  for (int64_t column = 0; column < columns; column += kColumns)
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const Packed *left = a + row * depth, *right = b + column * depth;
      R *to = c + row * ldc + column;
      const int height = int(rows - row < kTileRows ? rows - row : kTileRows);
      const int64_t width = columns - column < kColumns ? columns - column : kColumns;
      prefetch.step();
      if (width == kColumns && mode != Sums::Stream) {
        fetchTile(to, ldc, height);
        tile(height, left, right, to, ldc, add);
        continue;
      }
      // A tile that would reach beyond the matrix, or that streamTile() copies, needs a buffer.
      alignas(64) R edge[kTileRows * kColumns];
      tile(height, left, right, edge, kColumns, false);
      if (width == kColumns) {
        streamTile(edge, to, ldc, height);
        continue;
      }
      for (int64_t r = 0; r < height; ++r)
        for (int64_t i = 0; i < width; ++i) {
          R &element = to[r * ldc + i];
          element = add ? element + edge[r * kColumns + i] : edge[r * kColumns + i];
        }
    }
  if (mode == Sums::Stream)
    endStream();
}

// The product sums a tile over indices [first, last) of the depth (dimension k). If `wanted` is
// false, it does not write the tile.
struct DepthRange {
  int64_t first, last;
  bool wanted = true;
};

// Computes the product. `range(row, rows, column, columns)` returns the DepthRange of a tile.
template <Layout kLayout, typename R, typename Range>
LMC_INLINE void multiplyTiles(int64_t rows, int64_t columns, const R *a, int64_t lda, const R *b,
                              int64_t ldb, R *c, int64_t ldc, bool add, Range range) {
  for (int64_t column = 0; column < columns; column += kTileColumns<R>) {
    bool wide = columns - column >= kTileColumns<R>;
    for (int64_t row = 0; row < rows; row += kTileRows) {
      int count = int(rows - row < kTileRows ? rows - row : kTileRows);
      DepthRange depth = range(row, count, column, wide ? kTileColumns<R> : kWidth<R>);
      if (!depth.wanted)
        continue;
      int64_t steps = depth.last > depth.first ? depth.last - depth.first : 0;
      const R *left =
          kLayout == Layout::RowMajor ? a + row * lda + depth.first : a + depth.first * lda + row;
      const R *right = b + depth.first * ldb + column;
      R *to = c + row * ldc + column;
      if (wide)
        tileOf<R, kLayout, 2>(count, steps, left, lda, right, ldb, to, ldc, add);
      else
        tileOf<R, kLayout, 1>(count, steps, left, lda, right, ldb, to, ldc, add);
    }
  }
}

} // namespace lmc::cpu::LMC_ISA
