// Tiles of q, k, v and dout for products of warpgroups (platform.cuh, GroupProducts). A warp of a
// warpgroup has 16 rows of a result, in the register layout of multiplyAdd16x8x16. So the functions
// of attention.cuh (with M = 1) serve both kinds of products.
#pragma once

#include "lmc/attention.cuh"

namespace lmc::attention {

// Return the registers of a result as one array: all, or `Count` registers from `first` on.
template <int Count, int N>
__device__ inline float (&elements(float (&d)[1][N][4], int first))[Count] {
  return *reinterpret_cast<float(*)[Count]>(&d[0][0][0] + first);
}
template <int N> __device__ inline float (&elements(float (&d)[1][N][4]))[4 * N] {
  return elements<4 * N>(d, 0);
}

// A tile of `Rows` rows and D columns of bf16 in shared memory. It consists of panels of 64
// columns, in the layout of GroupProducts. Rows is a multiple of 8, and D is a multiple of 32.
template <int Rows, int D> struct GroupTile {
  static constexpr int panels = ceilDiv(D, 64), panelBytes = Rows * kTileRowBytes;
  static constexpr int bytes = panels * panelBytes;

  // Starts the copy of rows [tile * Rows, (tile + 1) * Rows) of a sequence to the tile `to`. The
  // starts of the sequence's rows are Pitch elements apart. Rows >= Seq and columns >= Columns
  // become zeros. All `Threads` threads of the block must call it.
  template <int Columns, int Threads, int Pitch, int Seq>
  __device__ static inline void copy(u32 to, const bf16 *from, int tile) {
    constexpr int down = Threads / 8;
    const int column = int(threadIdx.x) % 8, row0 = int(threadIdx.x) / 8;
    const bf16 *source = from + i64(tile * Rows + row0) * Pitch + column * 8;
#pragma unroll
    for (int i = 0; i < ceilDiv(Rows, down); ++i) {
      const int row = row0 + i * down;
      if (Rows % down != 0 && row >= Rows)
        break;
      const bool valid = Seq % Rows == 0 || tile * Rows + row < Seq;
#pragma unroll
      for (int p = 0; p < panels; ++p)
        if (D % 64 == 0 || 8 * p + column < D / 8)
          copyAsync16(to + p * panelBytes + tileOffset(row, column),
                      source + i64(i) * down * Pitch + 64 * p,
                      valid && (Columns == D || 8 * p + column < Columns / 8));
    }
  }

  // Loads rows [row, row + 16) as the left operand of products. The whole warp must call it.
  __device__ static inline void load(u32 (&a)[1][D / 16][4], u32 tile, int row) {
    const LaneOfTile<64, Operand::Rows> lane;
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      loadMatrix4(a[0][k], tile + k / 4 * panelBytes + lane.at(row, k % 4));
  }

  // Rounds 16 rows of a result to bf16 and writes them to the tile, where row `row` is the first.
  // Then copies them to the sequence, where row `first` is the first and rows start Pitch elements
  // apart. Skips the sequence's rows >= Seq and columns >= Columns. The whole warp must call it. No
  // thread of a different warp and no product may use the 16 rows of the tile.
  template <int Columns, int Pitch, int Seq>
  __device__ static inline void store(u8 *tile, int row, const float (&d)[1][D / 8][4], bf16 *to,
                                      int first) {
    const int lane = int(threadIdx.x) % 32, column = lane % 8, row0 = lane / 8;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<u32 *>(tile + n / 8 * panelBytes +
                                 tileOffset(row + 8 * half + lane / 4, n % 8) + lane % 4 * 4) =
            packBf16(d[0][n][2 * half], d[0][n][2 * half + 1]);
    __syncwarp();
    bf16 *target = to + i64(first + row0) * Pitch + column * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (first + row0 + 4 * i >= Seq)
        break;
#pragma unroll
      for (int p = 0; p < panels; ++p)
        if ((D % 64 == 0 && Columns == D) || 8 * p + column < Columns / 8)
          storeGlobal<16>(target + i64(i) * 4 * Pitch + 64 * p,
                          *reinterpret_cast<const Bits<16> *>(
                              tile + p * panelBytes + tileOffset(row + row0 + 4 * i, column)));
    }
  }
};

// Issues d[64, Rows] = a b^T, with sums over all D columns. `a` has the rows of this warp in
// registers, or is the address of the warpgroup's 64 rows. `b` is the address of a tile.
template <int Rows, int D, int OwnRows, int N>
__device__ inline void issueScores(GroupProducts &products, float (&d)[1][N][4],
                                   const u32 (&a)[1][D / 16][4], u32 b) {
  static_assert(8 * N == Rows, "a column for each row of the tile");
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const u32 right = b + k / 4 * GroupTile<Rows, D>::panelBytes + k % 4 * 32;
    if (k == 0)
      products.template add<Rows, false, true>(elements(d), a[0][k], right);
    else
      products.template add<Rows, false>(elements(d), a[0][k], right);
  }
}
template <int Rows, int D, int OwnRows, int N>
__device__ inline void issueScores(GroupProducts &products, float (&d)[1][N][4], u32 a, u32 b) {
  static_assert(8 * N == Rows, "a column for each row of the tile");
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    const u32 left = a + k / 4 * GroupTile<OwnRows, D>::panelBytes + k % 4 * 32;
    const u32 right = b + k / 4 * GroupTile<Rows, D>::panelBytes + k % 4 * 32;
    if (k == 0)
      products.template add<Rows, false, false, true>(elements(d), left, right);
    else
      products.template add<Rows, false, false>(elements(d), left, right);
  }
}

// Issues d[64, D] += a b, where b is a tile. If b has 64 rows, one product covers all its columns,
// because its panels are kTurnedTileBytes apart. Other tiles need one product per panel.
template <int Rows, int D>
__device__ inline void issueSums(GroupProducts &products, float (&d)[1][D / 8][4],
                                 const u32 (&a)[1][Rows / 16][4], u32 b) {
  using Tile = GroupTile<Rows, D>;
#pragma unroll
  for (int k = 0; k < Rows / 16; ++k) {
    const u32 right = b + k * (16 * kTileRowBytes);
    if constexpr (D <= 64 || Tile::panelBytes == kTurnedTileBytes) {
      products.template add<D, true>(elements(d), a[0][k], right);
    } else {
      static_assert(D % 64 == 0, "whole panels");
#pragma unroll
      for (int p = 0; p < Tile::panels; ++p)
        products.template add<64, true>(elements<32>(d, 32 * p), a[0][k],
                                        right + p * Tile::panelBytes);
    }
  }
}

// Returns the first address of shared memory at which tiles may start.
__device__ inline u32 groupTiles() { return (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024; }
constexpr int kGroupTilesPadding = 1024;

} // namespace lmc::attention
