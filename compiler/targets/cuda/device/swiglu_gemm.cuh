// Matrix products of a gated MLP by warpgroups (only on sm_90a), with SwiGLU in their epilogues.
//
//   swigluGemm:      [g | u] = x w^T, a = silu(g) u          x [rows, inner], w [2 columns, inner],
//                                                            gu [rows, 2 columns], a [rows, columns]
//   swigluGemmGrad:  d = dy w, dg = d u s (1 + g (1 - s)),   dy [rows, inner], w [inner, columns],
//                    du = d g s, a = g s u, s = 1 / (1 + e^-g)   gu and dgu [rows, 2 columns]
//
// g, u and d are rounded to bf16 before SwiGLU uses them. Tiles, grid and shared memory are those
// of plainGemm (persistent_gemm.cuh). A tile of swigluGemm has N / 2 columns of g and the same
// columns of u, so that one thread has both g and u of an element.
//
// A `Shape` has the constants of plainGemm, and bool both (true: swigluGemm also writes gu, and
// swigluGemmGrad also writes a). swigluGemmGrad may write its results to the memory of gu.
#pragma once

#include "lmc/persistent_gemm.cuh"
#include "lmc/swiglu.cuh"

namespace lmc {

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
