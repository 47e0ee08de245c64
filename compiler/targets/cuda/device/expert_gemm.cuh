// Multiplies rows by the matrix of their expert, and computes the gradient of the experts'
// matrices. Rows are sorted by expert: expert e has the rows [offsets[e], offsets[e + 1]), perhaps
// none. `offsets` is i32 [experts + 1]. The grid has enough blocks for all possible offsets. Blocks
// without work return.
//
// A `Shape` describes the problem by constants:
//   int rows, experts;
//   int inner, columns;   elements of a row of x, and of a row of y
//   bool transposed;      an expert's matrix is [inner, columns] instead of [columns, inner]
//   bool accumulate;      only for the gradient: it is added to d
//
// expertGemm:     y[r, :] = x[r, :] w_e^T   x [rows, inner], w [experts, columns, inner],
//                                           y [rows, columns]
//    transposed:  y[r, :] = x[r, :] w_e     w [experts, inner, columns]
// expertGemmGrad: d_e (+)= sum over rows of e of dy[r, :]^T x[r, :]
//                           dy [rows, columns], x [rows, inner], d [experts, columns, inner]
//
// A tile of the result has rows of one expert. The order of each sum does not depend on the grid.
// In the gradient, the experts with the most rows get the first blocks. A GPU starts blocks in the
// order of their numbers, so no long block runs alone at the end.
#pragma once

#include "lmc/attention.cuh"
#include "lmc/math.cuh"

namespace lmc {

namespace experts {

using attention::ceilDiv;
using attention::chunkOffset;
using attention::kFullWarp;
using attention::LaneOfTile;
using attention::lesser;
using attention::Operand;

// A block works on the rows [first, end) of one expert. A block without work has an empty range.
struct Rows {
  int expert, first, end;
};

// Returns the number of tiles of `Height` rows over all experts. Whole warps must call it.
template <int Experts, int Height> __device__ inline int tilesOfAll(const i32 *offsets) {
  int tiles = 0;
  for (int expert = int(threadIdx.x) % 32; expert < Experts; expert += 32)
    tiles += ceilDiv(loadOne(offsets + expert + 1) - loadOne(offsets + expert), Height);
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    tiles += __shfl_xor_sync(kFullWarp, tiles, step);
  return tiles;
}

// Returns the rows of tile `tile`. The rows of each expert are cut into tiles of `Height` rows;
// tiles are numbered over all experts. Whole warps must call it.
template <int Experts, int Height> __device__ inline Rows rowsOf(const i32 *offsets, int tile) {
  const int lane = int(threadIdx.x) % 32;
  int before = 0; // number of tiles of the experts below `base`
  for (int base = 0; base < Experts; base += 32) {
    const int expert = base + lane;
    int begin = 0, end = 0;
    if (expert < Experts) {
      begin = loadOne(offsets + expert);
      end = loadOne(offsets + expert + 1);
    }
    const int own = ceilDiv(end - begin, Height);
    int upTo = own; // number of tiles of the experts from `base` to base + lane
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int other = __shfl_up_sync(kFullWarp, upTo, step);
      upTo += lane >= step ? other : 0;
    }
    const u32 reached = __ballot_sync(kFullWarp, before + upTo > tile);
    if (reached != 0) {
      const int found = __ffs(int(reached)) - 1;
      begin = __shfl_sync(kFullWarp, begin, found);
      end = __shfl_sync(kFullWarp, end, found);
      const int skipped = __shfl_sync(kFullWarp, upTo - own, found);
      const int first = begin + (tile - before - skipped) * Height;
      return {base + found, first, lesser(first + Height, end)};
    }
    before += __shfl_sync(kFullWarp, upTo, 31);
  }
  return {0, 0, 0};
}

// Returns the expert with the `rank`-th most rows (0: the most rows). Whole warps must call it.
template <int Experts> __device__ inline int expertOfRank(const i32 *offsets, int rank) {
  constexpr int each = ceilDiv(Experts, 32); // number of experts per lane (lane, lane + 32, ...)
  const int lane = int(threadIdx.x) % 32;
  int rows[each], ranks[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int expert = i * 32 + lane;
    rows[i] = expert < Experts ? loadOne(offsets + expert + 1) - loadOne(offsets + expert) : -1;
    ranks[i] = 0;
  }
#pragma unroll
  for (int j = 0; j < each; ++j)
    for (int from = 0; from < 32; ++from) {
      const int others = __shfl_sync(kFullWarp, rows[j], from);
#pragma unroll
      for (int i = 0; i < each; ++i)
        ranks[i] += others > rows[i] || (others == rows[i] && j * 32 + from < i * 32 + lane);
    }
  int expert = 0;
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const u32 found = __ballot_sync(kFullWarp, ranks[i] == rank && i * 32 + lane < Experts);
    if (found != 0)
      expert = i * 32 + __ffs(int(found)) - 1;
  }
  return expert;
}

// Returns an upper bound of tilesOfAll() for all possible offsets.
__device__ constexpr int tilesOf(int rows, int experts, int height) {
  return rows / height + lesser(experts, rows);
}

// Products of bf16 on tensor cores. A block of 8 warps computes 128 x 128 elements, each warp 64 x
// 32. Shared memory holds kStages slices at a time. A slice has 32 terms of each sum.
constexpr int kTile = 128, kSlice = 32, kStages = 4, kThreads = 256;
constexpr int kTileBytes = kTile * kSlice * 2;
constexpr int kSharedBytes = 2 * kStages * kTileBytes;

// Starts the copy of `Height` rows of `Width` elements to a tile, from `row` and `column` on.
// Elements past `rowEnd` or `columnEnd` become zeros. `columnEnd` and `Pitch` are multiples of 8.
template <int Height, int Width, int Pitch>
__device__ inline void copyTile(u32 to, const bf16 *from, int row, int rowEnd, int column,
                                int columnEnd) {
  constexpr int across = Width / 8, down = kThreads / across;
  const int chunk = int(threadIdx.x) % across, row0 = int(threadIdx.x) / across;
  const bool inside = column + chunk * 8 < columnEnd;
  const bf16 *source = from + i64(row + row0) * Pitch + column + chunk * 8;
#pragma unroll
  for (int i = 0; i < Height / down; ++i)
    copyAsync16(to + chunkOffset<Width>(row0 + i * down, chunk), source + i64(i) * down * Pitch,
                inside && row + row0 + i * down < rowEnd);
}

// The layout of a factor's tile in shared memory. Across: it is [128, 32], and a row has 32 terms
// of a sum. Along: it is [32, 128], and a column has 32 terms of a sum.
enum class Layout { Across, Along };

// Computes d += a b^T for one slice, where d is the warp's 64 x 32 elements.
template <Layout A, Layout B>
__device__ inline void multiplySlice(float (&d)[4][4][4], u32 a, u32 b) {
  const int warp = int(threadIdx.x) / 32, row = warp / 4 * 64, column = warp % 4 * 32;
  LaneOfTile<kSlice, Operand::Rows> rows;
  LaneOfTile<kSlice, Operand::Columns> columns;
  LaneOfTile<kTile, Operand::Rows> alongRows;
  LaneOfTile<kTile, Operand::Columns> alongColumns;
#pragma unroll
  for (int k = 0; k < kSlice / 16; ++k) {
    u32 left[4][4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      if constexpr (A == Layout::Across)
        loadMatrix4(left[m], a + rows.at(row + 16 * m, k));
      else
        loadMatrix4Transposed(left[m], a + alongColumns.at(16 * k, row / 16 + m));
    }
#pragma unroll
    for (int n = 0; n < 4; n += 2) {
      u32 right[4];
      if constexpr (B == Layout::Across)
        loadMatrix4(right, b + columns.at(column + 8 * n, k));
      else
        loadMatrix4Transposed(right, b + alongRows.at(16 * k, (column + 8 * n) / 16));
#pragma unroll
      for (int m = 0; m < 4; ++m) {
        multiplyAdd16x8x16(d[m][n], left[m], right[0], right[1]);
        multiplyAdd16x8x16(d[m][n + 1], left[m], right[2], right[3]);
      }
    }
  }
}

// Computes d as a sum over `slices` slices. copy(slice, a, b) must start the copies of a slice of
// both factors to the shared addresses a and b.
template <Layout A, Layout B, typename Copy>
__device__ inline void multiply(float (&d)[4][4][4], int slices, Copy copy) {
  const u32 tiles = sharedAddress(sharedMemory());
  attention::clear(d);
#pragma unroll
  for (int stage = 0; stage < kStages - 1; ++stage) {
    if (stage < slices)
      copy(stage, tiles + 2 * stage * kTileBytes, tiles + (2 * stage + 1) * kTileBytes);
    copyAsyncCommit();
  }
  for (int slice = 0; slice < slices; ++slice) {
    copyAsyncWait<kStages - 2>();
    __syncthreads(); // the slice has arrived, and all warps have read the previous one
    const int next = slice + kStages - 1, stage = next % kStages;
    if (next < slices)
      copy(next, tiles + 2 * stage * kTileBytes, tiles + (2 * stage + 1) * kTileBytes);
    copyAsyncCommit();
    const u32 a = tiles + 2 * (slice % kStages) * kTileBytes;
    multiplySlice<A, B>(d, a, a + kTileBytes);
  }
  copyAsyncWait<0>();
  __syncthreads();
}

// Stores kTile rows of `Width` elements to the rows [first, end) of y, from `column` on. place(row,
// chunk) returns the address of elements [8 chunk, 8 chunk + 8) of a row in shared memory.
template <int Width, int Columns, typename Place>
__device__ inline void storeRowsOf(bf16 *y, int first, int end, int column, Place place) {
  constexpr int across = Width / 8, down = kThreads / across;
  const int own = int(threadIdx.x) % across, row0 = int(threadIdx.x) / across;
  if (column + own * 8 >= Columns)
    return;
#pragma unroll
  for (int i = 0; i < kTile / down; ++i) {
    const int at = row0 + i * down;
    if (first + at < end)
      storeGlobal<16>(y + i64(first + at) * Columns + column + own * 8,
                      *reinterpret_cast<const Bits<16> *>(place(at, own)));
  }
}

// Stores a block's results, rounded to bf16, through shared memory, as storeRowsOf does.
template <int Columns>
__device__ inline void storeTile(const float (&d)[4][4][4], bf16 *y, int first, int end,
                                 int column) {
  u8 *tile = sharedMemory();
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const int row = warp / 4 * 64, chunk = warp % 4 * 4;
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < 4; ++n)
        *reinterpret_cast<u32 *>(tile +
                                 chunkOffset<kTile>(row + 16 * m + 8 * half + lane / 4, chunk + n) +
                                 lane % 4 * 4) = packBf16(d[m][n][2 * half], d[m][n][2 * half + 1]);
  __syncthreads();
  storeRowsOf<kTile, Columns>(y, first, end, column,
                              [&](int at, int chunk) { return tile + chunkOffset<kTile>(at, chunk); });
}

// Products of bf16 by warpgroups. A block of 2 warpgroups computes [128, N], each warpgroup [64,
// N]. Shared memory holds `Stages` slices, each with 64 terms of a sum: the slice being multiplied,
// the previous one, which may still be read, and later ones, which are being copied.
template <int N, int Stages> struct Groups {
  static constexpr int kDeep = 64;
  static constexpr int kLeftBytes = kTile * kDeep * 2, kStageBytes = (kTile + N) * kDeep * 2;
  // Shared memory starts at a multiple of 128 bytes, but tiles must start at multiples of 1024.
  static constexpr int kSharedBytes = Stages * kStageBytes + 1024;

  // Copies `Height` rows of 64 elements as copyTile does. A row has consecutive terms of a sum.
  template <int Height, int Pitch>
  static __device__ inline void copyAlong(u32 to, const bf16 *from, int row, int rowEnd, int column,
                                          int columnEnd) {
    constexpr int across = kDeep / 8, down = kThreads / across;
    const int chunk = int(threadIdx.x) % across, row0 = int(threadIdx.x) / across;
    const bool inside = column + chunk * 8 < columnEnd;
    const bf16 *source = from + i64(row + row0) * Pitch + column + chunk * 8;
#pragma unroll
    for (int i = 0; i < Height / down; ++i)
      copyAsync16(to + tileOffset(row0 + i * down, chunk), source + i64(i) * down * Pitch,
                  inside && row + row0 + i * down < rowEnd);
  }
  // Copies 64 rows of `Width` elements to Turned tiles. A row has one term of each of `Width` sums.
  template <int Width, int Pitch>
  static __device__ inline void copyTurned(u32 to, const bf16 *from, int row, int rowEnd,
                                           int column, int columnEnd) {
    constexpr int across = Width / 8, down = kThreads / across;
    const int chunk = int(threadIdx.x) % across, row0 = int(threadIdx.x) / across;
    const bool inside = column + chunk * 8 < columnEnd;
    const bf16 *source = from + i64(row + row0) * Pitch + column + chunk * 8;
    to += chunk / 8 * kTurnedTileBytes;
#pragma unroll
    for (int i = 0; i < kDeep / down; ++i)
      copyAsync16(to + tileOffset(row0 + i * down, chunk % 8), source + i64(i) * down * Pitch,
                  inside && row + row0 + i * down < rowEnd);
  }

  // Sets d to the sum of the products of `slices` slices. `copy` is as in experts::multiply.
  template <bool TurnedA, bool TurnedB, typename Copy>
  static __device__ inline void multiply(float (&d)[N / 2], int slices, Copy copy) {
    const u32 tiles = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
    const u32 own = u32(threadIdx.x) / 128 * (kLeftBytes / 2);
    GroupProducts products;
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      d[i] = 0;
#pragma unroll
    for (int stage = 0; stage < Stages - 2; ++stage) {
      if (stage < slices)
        copy(stage, tiles + stage * kStageBytes, tiles + stage * kStageBytes + kLeftBytes);
      copyAsyncCommit();
    }
    for (int slice = 0; slice < slices; ++slice) {
      copyAsyncWait<Stages - 3>();
      seenByProducts();
      products.wait<1>();
      __syncthreads(); // the slice has arrived, and all warps have read the slice two before it
      const u32 a = tiles + slice % Stages * kStageBytes + own;
      const u32 b = tiles + slice % Stages * kStageBytes + kLeftBytes;
      products.begin();
#pragma unroll
      for (int k = 0; k < kDeep / 16; ++k)
        products.add<N, TurnedA, TurnedB>(d, a + k * (TurnedA ? 16 * kTileRowBytes : 32),
                                          b + k * (TurnedB ? 16 * kTileRowBytes : 32));
      products.commit();
      const int next = slice + Stages - 2;
      const u32 to = tiles + next % Stages * kStageBytes;
      if (next < slices)
        copy(next, to, to + kLeftBytes);
      copyAsyncCommit();
    }
    products.finish(d);
    copyAsyncWait<0>();
    __syncthreads();
  }

  // Return the row and the column, in the block's tile, of this thread's element d[i].
  static __device__ inline int rowOf(int i) {
    return int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4 + 8 * (i / 2 % 2);
  }
  static __device__ inline int columnOf(int i) { return 8 * (i / 4) + int(threadIdx.x) % 4 * 2; }

  template <int Columns>
  static __device__ inline void storeTile(const float (&d)[N / 2], bf16 *y, int first, int end,
                                          int column) {
    constexpr int pitch = 2 * N + 16; // no two of the 32 words that a warp stores share a bank
    u8 *tile = sharedMemory();
#pragma unroll
    for (int i = 0; i < N / 2; i += 2)
      *reinterpret_cast<u32 *>(tile + rowOf(i) * pitch + columnOf(i) * 2) =
          packBf16(d[i], d[i + 1]);
    __syncthreads();
    storeRowsOf<N, Columns>(y, first, end, column,
                            [&](int at, int chunk) { return tile + at * pitch + chunk * 16; });
  }
};

__device__ inline void fromReal(float &to, float x) { to = x; }
__device__ inline void fromReal(double &to, double x) { to = x; }
__device__ inline void fromReal(bf16 &to, float x) { to = toBf16(x); }

// The kernels without tensor cores: a block computes [32, 32], a thread 4 elements of a column.
constexpr int kPlainTile = 32;
template <typename Real> constexpr int kPlainSharedBytes = 2 * 32 * 33 * int(sizeof(Real));

// Copies 32 x 32 elements to shared memory, with zeros from rowEnd or columnEnd on. Element (i, j)
// goes to to[i * 33 + j], or to to[j * 33 + i] if `Turned`.
template <bool Turned, typename Real, typename T>
__device__ inline void copyPlain(Real *to, const T *from, i64 pitch, int row, int rowEnd,
                                 int column, int columnEnd) {
  const int lane = int(threadIdx.x) % 32;
  for (int i = int(threadIdx.x) / 32; i < 32; i += kThreads / 32)
    to[Turned ? lane * 33 + i : i * 33 + lane] =
        row + i < rowEnd && column + lane < columnEnd
            ? toReal(loadOne(from + i64(row + i) * pitch + column + lane))
            : Real(0);
}

// Adds 32 terms: sum[i] += sum over k < 32 of a[k * 33 + warp + 8 i] * b[k * 33 + lane].
template <typename Real>
__device__ inline void addPlain(Real (&sum)[4], const Real *a, const Real *b) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll 4
  for (int k = 0; k < 32; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      sum[i] += a[k * 33 + warp + 8 * i] * b[k * 33 + lane];
}

} // namespace experts

// Grid: tilesOf(rows, experts, kTile) * ceilDiv(columns, kTile) blocks of kThreads threads. inner
// and columns are multiples of 8. Blocks with consecutive numbers share rows of x.
template <typename Shape>
__device__ inline void expertGemm(const bf16 *x, const bf16 *w, const i32 *offsets, bf16 *y) {
  using namespace experts;
  constexpr int across = ceilDiv(Shape::columns, kTile);
  const Rows rows = rowsOf<Shape::experts, kTile>(offsets, int(blockIdx.x) / across);
  if (rows.first >= rows.end)
    return;
  const int column = int(blockIdx.x) % across * kTile;
  const bf16 *matrix = w + i64(rows.expert) * Shape::columns * Shape::inner;
  float d[4][4][4];
  constexpr int slices = ceilDiv(Shape::inner, kSlice);
  auto copyRows = [&](int slice, u32 to) {
    copyTile<kTile, kSlice, Shape::inner>(to, x, rows.first, rows.end, slice * kSlice,
                                          Shape::inner);
  };
  if constexpr (Shape::transposed)
    multiply<Layout::Across, Layout::Along>(d, slices, [&](int slice, u32 a, u32 b) {
      copyRows(slice, a);
      copyTile<kSlice, kTile, Shape::columns>(b, matrix, slice * kSlice, Shape::inner, column,
                                              Shape::columns);
    });
  else
    multiply<Layout::Across, Layout::Across>(d, slices, [&](int slice, u32 a, u32 b) {
      copyRows(slice, a);
      copyTile<kTile, kSlice, Shape::inner>(b, matrix, column, Shape::columns, slice * kSlice,
                                            Shape::inner);
    });
  storeTile<Shape::columns>(d, y, rows.first, rows.end, column);
}

// Grid: ceilDiv(columns, kTile) x ceilDiv(inner, kTile) x experts blocks of kThreads threads. inner
// and columns are multiples of 8.
template <typename Shape>
__device__ inline void expertGemmGrad(const bf16 *dy, const bf16 *x, const i32 *offsets,
                                      float *to) {
  using namespace experts;
  const int expert = expertOfRank<Shape::experts>(offsets, int(blockIdx.z));
  const int row = int(blockIdx.x) * kTile;
  const int column = int(blockIdx.y) * kTile;
  const int first = loadOne(offsets + expert), end = loadOne(offsets + expert + 1);
  if (Shape::accumulate && first >= end)
    return;
  float d[4][4][4];
  multiply<Layout::Along, Layout::Along>(
      d, ceilDiv(end - first, kSlice), [&](int slice, u32 a, u32 b) {
        const int at = first + slice * kSlice;
        copyTile<kSlice, kTile, Shape::columns>(a, dy, at, end, row, Shape::columns);
        copyTile<kSlice, kTile, Shape::inner>(b, x, at, end, column, Shape::inner);
      });
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float *matrix = to + i64(expert) * Shape::columns * Shape::inner;
#pragma unroll
  for (int m = 0; m < 4; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        const int i = row + warp / 4 * 64 + 16 * m + 8 * half + lane / 4;
        const int j = column + warp % 4 * 32 + 8 * n + lane % 4 * 2;
        if (i >= Shape::columns || j >= Shape::inner)
          continue;
        float *place = matrix + i64(i) * Shape::inner + j;
        Vec<float, 2> value{{d[m][n][2 * half], d[m][n][2 * half + 1]}};
        if constexpr (Shape::accumulate) {
          const Vec<float, 2> before = load<2>(place);
          value.at[0] += before.at[0];
          value.at[1] += before.at[1];
        }
        store(place, value);
      }
}

// expertGemm by warpgroups (only on sm_90a), with tiles of 128 x N elements and Groups<N,
// Stages>::kSharedBytes of shared memory. Grid: tilesOf(rows, experts, kTile) * ceilDiv(columns,
// N).
template <typename Shape, int N, int Stages>
__device__ inline void expertGemmGroups(const bf16 *x, const bf16 *w, const i32 *offsets, bf16 *y) {
  using namespace experts;
  using G = Groups<N, Stages>;
  constexpr int across = ceilDiv(Shape::columns, N), slices = ceilDiv(Shape::inner, G::kDeep);
  const Rows rows = rowsOf<Shape::experts, kTile>(offsets, int(blockIdx.x) / across);
  if (rows.first >= rows.end)
    return;
  const int column = int(blockIdx.x) % across * N;
  const bf16 *matrix = w + i64(rows.expert) * Shape::columns * Shape::inner;
  float d[N / 2];
  G::template multiply<false, Shape::transposed>(d, slices, [&](int slice, u32 a, u32 b) {
    const int at = slice * G::kDeep;
    G::template copyAlong<kTile, Shape::inner>(a, x, rows.first, rows.end, at, Shape::inner);
    if constexpr (Shape::transposed)
      G::template copyTurned<N, Shape::columns>(b, matrix, at, Shape::inner, column,
                                                Shape::columns);
    else
      G::template copyAlong<N, Shape::inner>(b, matrix, column, Shape::columns, at, Shape::inner);
  });
  G::template storeTile<Shape::columns>(d, y, rows.first, rows.end, column);
}

// expertGemmGrad by warpgroups. Grid: ceilDiv(columns, kTile) x ceilDiv(inner, N) x experts.
template <typename Shape, int N, int Stages>
__device__ inline void expertGemmGradGroups(const bf16 *dy, const bf16 *x, const i32 *offsets,
                                            float *to) {
  using namespace experts;
  using G = Groups<N, Stages>;
  const int expert = expertOfRank<Shape::experts>(offsets, int(blockIdx.z));
  const int row = int(blockIdx.x) * kTile;
  const int column = int(blockIdx.y) * N;
  const int first = loadOne(offsets + expert), end = loadOne(offsets + expert + 1);
  if (Shape::accumulate && first >= end)
    return;
  float d[N / 2];
  G::template multiply<true, true>(d, ceilDiv(end - first, G::kDeep), [&](int slice, u32 a, u32 b) {
    const int at = first + slice * G::kDeep;
    G::template copyTurned<kTile, Shape::columns>(a, dy, at, end, row, Shape::columns);
    G::template copyTurned<N, Shape::inner>(b, x, at, end, column, Shape::inner);
  });
  float *matrix = to + i64(expert) * Shape::columns * Shape::inner;
#pragma unroll
  for (int k = 0; k < N / 2; k += 2) {
    const int i = row + G::rowOf(k), j = column + G::columnOf(k);
    if (i >= Shape::columns || j >= Shape::inner)
      continue;
    float *place = matrix + i64(i) * Shape::inner + j;
    Vec<float, 2> value{{d[k], d[k + 1]}};
    if constexpr (Shape::accumulate) {
      const Vec<float, 2> before = load<2>(place);
      value.at[0] += before.at[0];
      value.at[1] += before.at[1];
    }
    store(place, value);
  }
}

// Computes expertGemm for any type and size, without tensor cores. `Real` is the type of sums.
// Grid: tilesOf(rows, experts, kPlainTile) x ceilDiv(columns, kPlainTile).
template <typename Shape, typename Real, typename T>
__device__ inline void expertGemmPlain(const T *x, const T *w, const i32 *offsets, T *y) {
  using namespace experts;
  const Rows rows = rowsOf<Shape::experts, kPlainTile>(offsets, int(blockIdx.x));
  if (rows.first >= rows.end)
    return;
  const int column = int(blockIdx.y) * kPlainTile;
  const T *matrix = w + i64(rows.expert) * Shape::columns * Shape::inner;
  Real *a = reinterpret_cast<Real *>(sharedMemory()), *b = a + 32 * 33;
  Real sum[4] = {};
  for (int k = 0; k < Shape::inner; k += 32) {
    copyPlain<true>(a, x, Shape::inner, rows.first, rows.end, k, Shape::inner);
    if constexpr (Shape::transposed)
      copyPlain<false>(b, matrix, Shape::columns, k, Shape::inner, column, Shape::columns);
    else
      copyPlain<true>(b, matrix, Shape::inner, column, Shape::columns, k, Shape::inner);
    __syncthreads();
    addPlain(sum, a, b);
    __syncthreads();
  }
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int row = rows.first + warp + 8 * i;
    if (row >= rows.end || column + lane >= Shape::columns)
      continue;
    T value;
    fromReal(value, sum[i]);
    storeOne(y + i64(row) * Shape::columns + column + lane, value);
  }
}

// Computes expertGemmGrad for any type. Grid: ceilDiv(columns, kPlainTile) x ceilDiv(inner,
// kPlainTile) x experts.
template <typename Shape, typename Real, typename T>
__device__ inline void expertGemmGradPlain(const T *dy, const T *x, const i32 *offsets, Real *to) {
  using namespace experts;
  const int expert = expertOfRank<Shape::experts>(offsets, int(blockIdx.z));
  const int row = int(blockIdx.x) * kPlainTile;
  const int column = int(blockIdx.y) * kPlainTile;
  const int first = loadOne(offsets + expert), end = loadOne(offsets + expert + 1);
  if (Shape::accumulate && first >= end)
    return;
  Real *a = reinterpret_cast<Real *>(sharedMemory()), *b = a + 32 * 33;
  Real sum[4] = {};
  for (int k = first; k < end; k += 32) {
    copyPlain<false>(a, dy, Shape::columns, k, end, row, Shape::columns);
    copyPlain<false>(b, x, Shape::inner, k, end, column, Shape::inner);
    __syncthreads();
    addPlain(sum, a, b);
    __syncthreads();
  }
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  Real *matrix = to + i64(expert) * Shape::columns * Shape::inner;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int at = row + warp + 8 * i;
    if (at >= Shape::columns || column + lane >= Shape::inner)
      continue;
    Real *place = matrix + i64(at) * Shape::inner + column + lane;
    storeOne(place, Shape::accumulate ? loadOne(place) + sum[i] : sum[i]);
  }
}

} // namespace lmc
