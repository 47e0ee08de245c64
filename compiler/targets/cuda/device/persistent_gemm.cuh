// Matrix products by warpgroups (only on sm_90a) whose blocks stay on their SMs.
//
//   plainGemm:             y = x w^T              x [rows, inner], w [columns, inner], y [rows, columns]
//   expertGemmPersistent:  as expertGemmGroups (expert_gemm.cuh)
//
// All tensors are bf16, sums are f32. A block computes tiles of 128 x N one after the other. While
// it stores a tile, the first slices of the next tile are being copied. plainGemm computes
// Shape::band rows of tiles together, so that blocks share rows of x and of w in the L2 cache.
//
// A `Shape` describes the problem by constants: int rows, inner, columns (inner and columns are
// multiples of 8), blocks (of the grid). plainGemm also has int band (rows of tiles), and
// expertGemmPersistent has int experts and bool transposed.
#pragma once

#include "lmc/expert_gemm.cuh"

namespace lmc {

namespace products {

using experts::kTile;
using attention::ceilDiv;
using attention::kFullWarp;
using attention::lesser;

// The position of a tile in the grid of tiles that covers a matrix.
struct Place {
  int row, column;
};
template <typename Shape> __device__ inline Place placeOf(int tile, int down, int across) {
  const int band = tile / (Shape::band * across), in = tile % (Shape::band * across);
  const int height = lesser(Shape::band, down - band * Shape::band);
  return {band * Shape::band + in % height, in / height};
}

// Transposes words among four neighbouring lanes. Before, lane t has the columns 2 t and 2 t + 1 of
// each of four blocks of 8 columns. Afterwards it has all 8 columns of block t.
__device__ inline void turn(u32 (&words)[4]) {
  const int lane = int(threadIdx.x) % 4;
#pragma unroll
  for (int step = 1; step <= 2; step *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if ((i & step) == 0) {
        const bool upper = (lane & step) != 0;
        const u32 sent = upper ? words[i] : words[i + step];
        const u32 got = __shfl_xor_sync(kFullWarp, sent, step);
        words[i] = upper ? got : words[i];
        words[i + step] = upper ? words[i + step] : got;
      }
}

// Rounds d to bf16. Calls visit(row, column, words...) for each piece of 8 columns that a lane has
// after turn(). `row` is a row of the block's tile, `column` one of the N columns. With `Pairs`,
// visit gets the words at `column` and those at `column` + N / 2.
template <int N, bool Pairs, typename Visit>
__device__ inline void forEachPiece(const float (&d)[N / 2], Visit visit) {
  constexpr int blocks = (Pairs ? N / 2 : N) / 8;
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half)
#pragma unroll
    for (int block = 0; block < blocks; block += 4) {
      const int row = int(threadIdx.x) / 32 * 16 + lane / 4 + 8 * half;
      const int column = 8 * (block + lane % 4);
      u32 first[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        first[i] = packBf16(d[4 * (block + i) + 2 * half], d[4 * (block + i) + 2 * half + 1]);
      turn(first);
      if constexpr (Pairs) {
        u32 second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          second[i] = packBf16(d[N / 4 + 4 * (block + i) + 2 * half],
                               d[N / 4 + 4 * (block + i) + 2 * half + 1]);
        turn(second);
        visit(row, column, first, second);
      } else {
        visit(row, column, first);
      }
    }
}

__device__ inline void storeWords(bf16 *to, const u32 (&words)[4]) {
  storeGlobal<16>(to, Bits<16>{{words[0], words[1], words[2], words[3]}});
}

// Computes the tiles blockIdx.x, blockIdx.x + Blocks, ... below `tiles`. A tile is a sum over
// `slices` slices of 64 terms. copy(tile, slice, a, b) must start the copies of a slice to the
// shared addresses a and b. store(tile, d) gets the sums `d`, and must not touch shared memory.
template <int N, int Stages, int Blocks, bool TurnedB, typename Copy, typename Store>
__device__ inline void computeTiles(int tiles, int slices, Copy copy, Store store) {
  using G = experts::Groups<N, Stages>;
  const u32 base = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
  const u32 own = u32(threadIdx.x) / 128 * (G::kLeftBytes / 2);
  const int first = int(blockIdx.x);
  const int mine = first < tiles ? ceilDiv(tiles - first, Blocks) : 0, all = mine * slices;
  // Slices are counted over all tiles of the block.
  auto start = [&](int number) {
    const u32 to = base + number % Stages * G::kStageBytes;
    if (number < all)
      copy(first + number / slices * Blocks, number % slices, to, to + G::kLeftBytes);
    copyAsyncCommit();
  };
#pragma unroll
  for (int stage = 0; stage < Stages - 2; ++stage)
    start(stage);
  GroupProducts products;
  float d[N / 2];
  for (int tile = 0; tile < mine; ++tile) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i)
      d[i] = 0;
    for (int slice = 0; slice < slices; ++slice) {
      const int number = tile * slices + slice;
      copyAsyncWait<Stages - 3>();
      seenByProducts();
      products.template wait<1>();
      __syncthreads(); // the slice has arrived, and all warps have read the slice two before it
      const u32 a = base + number % Stages * G::kStageBytes + own;
      const u32 b = base + number % Stages * G::kStageBytes + G::kLeftBytes;
      products.begin();
#pragma unroll
      for (int k = 0; k < G::kDeep / 16; ++k)
        products.template add<N, false, TurnedB>(d, a + k * 32,
                                                 b + k * (TurnedB ? 16 * kTileRowBytes : 32));
      products.commit();
      start(number + Stages - 2);
    }
    products.finish(d);
    store(first + tile * Blocks, d);
  }
  copyAsyncWait<0>();
}

} // namespace products

// Grid of all kernels of this file: Shape::blocks blocks of 256 threads, at most one on an SM, with
// experts::Groups<N, Stages>::kSharedBytes of shared memory.
template <typename Shape, int N, int Stages>
__device__ inline void plainGemm(const bf16 *x, const bf16 *w, bf16 *y) {
  using namespace products;
  using G = experts::Groups<N, Stages>;
  constexpr int down = ceilDiv(Shape::rows, kTile), across = ceilDiv(Shape::columns, N);
  computeTiles<N, Stages, Shape::blocks, false>(
      down * across, ceilDiv(Shape::inner, G::kDeep),
      [&](int tile, int slice, u32 a, u32 b) {
        const Place place = placeOf<Shape>(tile, down, across);
        const int at = slice * G::kDeep;
        G::template copyAlong<kTile, Shape::inner>(a, x, place.row * kTile, Shape::rows, at,
                                                   Shape::inner);
        G::template copyAlong<N, Shape::inner>(b, w, place.column * N, Shape::columns, at,
                                               Shape::inner);
      },
      [&](int tile, const float(&d)[N / 2]) {
        const Place place = placeOf<Shape>(tile, down, across);
        forEachPiece<N, false>(d, [&](int row, int column, const u32(&words)[4]) {
          row += place.row * kTile;
          column += place.column * N;
          if (row < Shape::rows && column < Shape::columns)
            storeWords(y + i64(row) * Shape::columns + column, words);
        });
      });
}

template <typename Shape, int N, int Stages>
__device__ inline void expertGemmPersistent(const bf16 *x, const bf16 *w, const i32 *offsets,
                                            bf16 *y) {
  using namespace products;
  using G = experts::Groups<N, Stages>;
  constexpr int across = ceilDiv(Shape::columns, N);
  // The number of tile rows over all experts. A tile row has `across` tiles.
  const int down = experts::tilesOfAll<Shape::experts, kTile>(offsets);
  // The tile whose slices are being copied, and the rows of x that the tile needs.
  int copied = -1;
  experts::Rows from = {0, 0, 0};
  computeTiles<N, Stages, Shape::blocks, Shape::transposed>(
      down * across, ceilDiv(Shape::inner, G::kDeep),
      [&](int tile, int slice, u32 a, u32 b) {
        if (tile != copied)
          from = experts::rowsOf<Shape::experts, kTile>(offsets, tile / across);
        copied = tile;
        const int at = slice * G::kDeep, column = tile % across * N;
        const bf16 *matrix = w + i64(from.expert) * Shape::columns * Shape::inner;
        G::template copyAlong<kTile, Shape::inner>(a, x, from.first, from.end, at, Shape::inner);
        if constexpr (Shape::transposed)
          G::template copyTurned<N, Shape::columns>(b, matrix, at, Shape::inner, column,
                                                    Shape::columns);
        else
          G::template copyAlong<N, Shape::inner>(b, matrix, column, Shape::columns, at,
                                                 Shape::inner);
      },
      [&](int tile, const float(&d)[N / 2]) {
        const experts::Rows rows = experts::rowsOf<Shape::experts, kTile>(offsets, tile / across);
        forEachPiece<N, false>(d, [&](int row, int column, const u32(&words)[4]) {
          row += rows.first;
          column += tile % across * N;
          if (row < rows.end && column < Shape::columns)
            storeWords(y + i64(row) * Shape::columns + column, words);
        });
      });
}

} // namespace lmc
