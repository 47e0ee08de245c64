// Matrix products of a gated MLP by warpgroups, with SwiGLU in their epilogues, so that what the
// elementwise kernels would read and write again never leaves the registers; on sm_90a alone.
//
//   swigluGemm:      [g | u] = x w^T, a = silu(g) u          x [rows, inner], w [2 columns, inner],
//                                                            gu [rows, 2 columns], a [rows, columns]
//   swigluGemmGrad:  d = dy w, dg = d u s (1 + g (1 - s)),   dy [rows, inner], w [inner, columns],
//                    du = d g s, a = g s u, s = 1 / (1 + e^-g)   gu and dgu [rows, 2 columns]
//   plainGemm:       y = x w^T                               w [columns, inner], y [rows, columns]
//
// All is bf16; sums are in f32, g, u and d are rounded before they are used, as the elementwise
// kernels read them.
//
// A block stays on its SM and computes one tile of 128 x N after the other; slices of the next tile
// are on their way while a tile is stored. Tiles are in bands of so many tiles of rows, so that the
// blocks that run at the same time share rows of x and of w in the L2 cache. A tile of swigluGemm has
// N / 2 columns of g and the same ones of u, so that one thread has both of an element.
//
// A `Shape` describes the problem by constants: int rows, inner, columns (inner and columns are
// multiples of 8), blocks (of the grid), band (tiles); bool both: swigluGemm writes gu, too, and
// swigluGemmGrad a. The results of swigluGemmGrad may be where gu is.
#pragma once

#include "lmc/expert_gemm.cuh"
#include "lmc/swiglu.cuh"

namespace lmc {

namespace products {

using experts::kTile;
using attention::ceilDiv;
using attention::kFullWarp;
using attention::lesser;

// The row and the column at which tile `tile` of `down` x `across` tiles begins, in tiles.
struct Place {
  int row, column;
};
template <typename Shape> __device__ inline Place placeOf(int tile, int down, int across) {
  const int band = tile / (Shape::band * across), in = tile % (Shape::band * across);
  const int height = lesser(Shape::band, down - band * Shape::band);
  return {band * Shape::band + in % height, in / height};
}

// Of four neighbouring lanes, each has words of the columns 2 t and 2 t + 1 of four blocks of 8
// columns. Gives lane t all 8 columns of block t.
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

// Calls visit(row, column, words...) for each piece of 8 columns of the warpgroup's 64 x N sums that a
// lane has after turn(), rounded to bf16: `row` within the block's tile, `column` within the N
// columns. With `Pairs`, the columns are those of the first half of N, and visit gets the words of
// both halves.
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

// Computes the tiles blockIdx.x, blockIdx.x + Blocks, ... of `tiles`, each the sum of the products of
// `slices` slices of 64. copy(tile, slice, a, b) starts the copies of a slice to the tiles of shared
// memory at a and b; store(tile, d) gets the sums, and touches no shared memory.
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
      __syncthreads(); // the slice is there, and all are done with the slice two before it
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

// Grid: Shape::blocks blocks of 256 threads, at most one on an SM, with
// experts::Groups<N, Stages>::kSharedBytes of shared memory. The same for the other two.
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
__device__ inline void swigluGemm(const bf16 *x, const bf16 *w, bf16 *gu, bf16 *a) {
  using namespace products;
  using G = experts::Groups<N, Stages>;
  constexpr int half = N / 2;
  constexpr int down = ceilDiv(Shape::rows, kTile), across = ceilDiv(Shape::columns, half);
  computeTiles<N, Stages, Shape::blocks, false>(
      down * across, ceilDiv(Shape::inner, G::kDeep),
      [&](int tile, int slice, u32 left, u32 right) {
        const Place place = placeOf<Shape>(tile, down, across);
        const int at = slice * G::kDeep, column = place.column * half;
        G::template copyAlong<kTile, Shape::inner>(left, x, place.row * kTile, Shape::rows, at,
                                                   Shape::inner);
        G::template copyAlong<half, Shape::inner>(right, w, column, Shape::columns, at,
                                                  Shape::inner);
        G::template copyAlong<half, Shape::inner>(right + half * kTileRowBytes, w,
                                                  Shape::columns + column, 2 * Shape::columns, at,
                                                  Shape::inner);
      },
      [&](int tile, const float(&d)[N / 2]) {
        const Place place = placeOf<Shape>(tile, down, across);
        forEachPiece<N, true>(
            d, [&](int row, int column, const u32(&gate)[4], const u32(&up)[4]) {
              row += place.row * kTile;
              column += place.column * half;
              if (row >= Shape::rows || column >= Shape::columns)
                return;
              if constexpr (Shape::both) {
                bf16 *to = gu + i64(row) * (2 * Shape::columns) + column;
                storeWords(to, gate);
                storeWords(to + Shape::columns, up);
              }
              u32 activation[4];
#pragma unroll
              for (int i = 0; i < 4; ++i)
                activation[i] = gated(gate[i], up[i]);
              storeWords(a + i64(row) * Shape::columns + column, activation);
            });
      });
}

template <typename Shape, int N, int Stages>
__device__ inline void swigluGemmGrad(const bf16 *dy, const bf16 *w, const bf16 *gu, bf16 *dgu,
                                      bf16 *a) {
  using namespace products;
  using G = experts::Groups<N, Stages>;
  constexpr int down = ceilDiv(Shape::rows, kTile), across = ceilDiv(Shape::columns, N);
  computeTiles<N, Stages, Shape::blocks, true>(
      down * across, ceilDiv(Shape::inner, G::kDeep),
      [&](int tile, int slice, u32 left, u32 right) {
        const Place place = placeOf<Shape>(tile, down, across);
        const int at = slice * G::kDeep;
        G::template copyAlong<kTile, Shape::inner>(left, dy, place.row * kTile, Shape::rows, at,
                                                   Shape::inner);
        G::template copyTurned<N, Shape::columns>(right, w, at, Shape::inner, place.column * N,
                                                  Shape::columns);
      },
      [&](int tile, const float(&d)[N / 2]) {
        const Place place = placeOf<Shape>(tile, down, across);
        forEachPiece<N, false>(d, [&](int row, int column, const u32(&words)[4]) {
          row += place.row * kTile;
          column += place.column * N;
          if (row >= Shape::rows || column >= Shape::columns)
            return;
          const i64 at = i64(row) * (2 * Shape::columns) + column;
          const Bits<16> gate = loadGlobal<16>(gu + at);
          const Bits<16> up = loadGlobal<16>(gu + at + Shape::columns);
          u32 dgate[4], dup[4], activation[4];
#pragma unroll
          for (int i = 0; i < 4; ++i)
            gatedGrad(words[i], gate.words[i], up.words[i], dgate[i], dup[i], activation[i]);
          storeWords(dgu + at, dgate);
          storeWords(dgu + at + Shape::columns, dup);
          if constexpr (Shape::both)
            storeWords(a + i64(row) * Shape::columns + column, activation);
        });
      });
}

} // namespace lmc
