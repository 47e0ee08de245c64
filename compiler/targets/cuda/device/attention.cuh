// The parts that the flash attention kernels share.
//
// A `Shape` describes the problem by constants:
//   int batch, seq, heads, kvHeads, headDim;   heads is a multiple of kvHeads
//   int window;         number of keys that a query sees; 0: no window
//   bool documents;     there is an argument `starts`, i32 [batch * seq], non-decreasing in a
//                       sequence
//   bool largest;       there is a result `largest`, f32: the largest absolute value of each head of a
//                       row of out, [batch * seq, heads], or of dq, dk and dv, [batch * seq, heads +
//                       2 kvHeads]
//   bool rope;          backward: dq and dk are rotated back by arguments `cos` and `sin`,
//                       f32 [seq, headDim / 2]
//   int qPitch, kPitch, vPitch, outPitch, doutPitch, dqPitch, dkPitch, dvPitch;
//                       elements from the start of one row (token) to the start of the next
//   float scale;        > 0
// Query i of a sequence sees key j if j <= i, if i - j < window (when window > 0), and if j >=
// starts[i] (when documents is true).
//
// The tensor core kernels need a headDim that is a multiple of 8. Their tiles have `D` >= headDim
// columns. Columns from headDim on are zeros in shared memory, and do not exist in global memory.
#pragma once

#include "lmc/math.cuh"
#include "lmc/vector_io.cuh"

namespace lmc::attention {

constexpr float kLog2E = 1.4426950408889634f;
// A finite value below every score. Subtracting it from itself gives no NaN, unlike infinity.
constexpr float kLowest = -1e30f;
constexpr u32 kFullWarp = 0xffffffffu;

__device__ constexpr int lesser(int a, int b) { return a < b ? a : b; }
__device__ constexpr int greater(int a, int b) { return a > b ? a : b; }
__device__ constexpr int ceilDiv(int a, int b) { return (a + b - 1) / b; }

__device__ inline float infinity() { return __uint_as_float(0x7f800000u); }

// Returns `x`, which must be equal in all lanes. By the shuffle, the compiler knows that it is.
__device__ inline int uniform(int x) { return __shfl_sync(kFullWarp, x, 0); }

// The work of one thread block: a tile of a query head or key head of a sequence.
struct Work {
  int tile, batch, head;
};

// Returns the work of thread block `block`. The hardware starts blocks in index order. All tiles of
// `Together` pairs of (sequence, head) come first, so that these pairs' keys and values stay in the
// L2 cache. Of these, the tiles with most work come first: the last if LastFirst, else tile 0.
template <int Batch, int Heads, int Tiles, int Together, bool LastFirst>
__device__ inline Work workOf(int block) {
  constexpr int pairs = Batch * Heads;
  constexpr int together = Together < pairs ? Together : pairs;
  int section = block / (together * Tiles);
  int rest = block - section * (together * Tiles);
  int count = lesser(together, pairs - section * together);
  int order = rest / count;
  int pair = section * together + (rest - order * count);
  return {LastFirst ? Tiles - 1 - order : order, pair / Heads, pair % Heads};
}

// Returns workOf() of the thread block. The shuffle hides from the compiler that the work is known
// already, so that no registers keep it while products are computed. The whole warp must call it.
template <int Batch, int Heads, int Tiles, int Together, bool LastFirst>
__device__ inline Work workAgain() {
  return workOf<Batch, Heads, Tiles, Together, LastFirst>(uniform(int(blockIdx.x)));
}

// Returns the first key that query `i` sees. `starts` has the entries of the query's sequence.
template <typename Shape> __device__ inline int firstKeyOf(const i32 *starts, int i) {
  int first = 0;
  if constexpr (Shape::window > 0)
    first = greater(first, i - Shape::window + 1);
  if constexpr (Shape::documents)
    first = greater(first, loadOne(starts + i));
  return first;
}

// Returns true if there may be queries that do not see key 0.
template <typename Shape> __device__ constexpr bool hasFirstKey() {
  return Shape::window > 0 || Shape::documents;
}

// Returns one past the last query of a sequence that sees key `key`. The whole warp must call it.
template <typename Shape> __device__ inline int endOfQueries(const i32 *starts, int key) {
  int high = Shape::seq;
  if constexpr (Shape::window > 0)
    high = lesser(high, key + Shape::window);
  if constexpr (Shape::documents) {
    int low = key + 1; // the result is in [low, high]
    while (low < high) {
      int step = ceilDiv(high - low, 32), at = low + int(threadIdx.x % 32) * step;
      u32 beyond = __ballot_sync(kFullWarp, at >= high || loadOne(starts + at) > key);
      int first = beyond == 0 ? 32 : __ffs(int(beyond)) - 1;
      high = lesser(high, low + first * step);
      if (first > 0)
        low += (first - 1) * step + 1;
    }
  }
  return high;
}

// Returns the permutation (swizzle) of the 16-byte chunks of a row of D bf16 elements in shared
// memory. It avoids bank conflicts when eight lanes access one chunk of eight rows, or eight chunks
// of one row. D is a multiple of 32.
template <int D> __device__ inline int swizzle(int row) {
  return D % 64 == 0 ? row & 7 : (row >> 1) & 3;
}
template <int D> __device__ inline int chunkOffset(int row, int chunk) {
  return row * (2 * D) + ((chunk ^ swizzle<D>(row)) << 4);
}

// Computes the address that this lane passes to ldmatrix, which loads 16 x 16 elements of a tile.
// The four registers that ldmatrix returns are operands of mma, which computes d += a b:
//   Operand::Rows     The registers are `a`, the 16 x 16 elements. If the load transposes, they are
//                     two `b`: columns 0-7 (registers 0 and 1) and 8-15 (registers 2 and 3).
//   Operand::Columns  The registers are two `b`. The columns of the first `b` (registers 0 and 1)
//                     are rows 0-7 of the elements. Those of the second (2 and 3) are rows 8-15.
enum class Operand { Rows, Columns };
template <int D, Operand Kind> struct LaneOfTile {
  static constexpr int kSwizzled = D % 64 == 0 ? 7 : 3;
  int row, chunk;
  __device__ LaneOfTile() {
    int lane = int(threadIdx.x) % 32;
    int in = Kind == Operand::Rows ? lane % 16 : lane % 8 + lane / 16 * 8;
    row = in * (2 * D);
    chunk = (Kind == Operand::Rows ? lane / 16 : lane / 8 % 2) ^ swizzle<D>(in);
  }
  // Returns the byte offset if the elements start at row firstRow (a multiple of 16), column 16 k.
  __device__ int at(int firstRow, int k) const {
    return firstRow * (2 * D) + row + ((chunk ^ (2 * k & kSwizzled)) << 4) +
           (2 * k & ~kSwizzled) * 16;
  }
};

// Starts the copy of rows [tile * Rows, (tile + 1) * Rows) of a sequence to shared memory. The
// starts of the sequence's rows are Pitch elements apart. Rows >= Seq and columns >= Columns become
// zeros. All `Threads` threads of the block must call it.
template <int Rows, int D, int Columns, int Threads, int Pitch, int Seq>
__device__ inline void copyTile(u32 to, const bf16 *from, int tile) {
  constexpr int across = D % 64 == 0 ? 8 : 4; // threads per row
  constexpr int down = Threads / across;
  const int column = int(threadIdx.x) % across, row0 = int(threadIdx.x) / across;
  const bf16 *source = from + i64(tile * Rows + row0) * Pitch + column * 8;
#pragma unroll
  for (int i = 0; i < ceilDiv(Rows, down); ++i) {
    if (Rows % down != 0 && row0 + i * down >= Rows)
      break;
    bool valid = Seq % Rows == 0 || tile * Rows + row0 + i * down < Seq;
#pragma unroll
    for (int c = 0; c < D / 8; c += across)
      copyAsync16(to + chunkOffset<D>(row0 + i * down, column + c),
                  source + i64(i) * down * Pitch + c * 8,
                  valid && (Columns == D || column + c < Columns / 8));
  }
}

// Stores 16 M rows from shared memory (`band`) to a sequence, from its row `first` on. The starts
// of the sequence's rows are Pitch elements apart. Skips rows from Seq and columns from Columns on.
template <int Rows, int M, int D, int Columns, int Pitch, int Seq>
__device__ inline void storeRows(const u8 *band, bf16 *to, int first) {
  constexpr int across = D % 64 == 0 ? 8 : 4, down = 32 / across;
  const int lane = int(threadIdx.x) % 32, column = lane % across, row0 = lane / across;
  bf16 *target = to + i64(first + row0) * Pitch + column * 8;
#pragma unroll
  for (int i = 0; i < 16 * M / down; ++i) {
    if (Seq % Rows != 0 && first + row0 + i * down >= Seq)
      break;
#pragma unroll
    for (int c = 0; c < D / 8; c += across)
      if (Columns == D || column + c < Columns / 8)
        storeGlobal<16>(target + i64(i) * down * Pitch + c * 8,
                        *reinterpret_cast<const Bits<16> *>(
                            band + chunkOffset<D>(row0 + i * down, column + c)));
  }
}

// The addresses that a lane passes to ldmatrix, for both kinds of operands.
template <int D> struct Lane {
  LaneOfTile<D, Operand::Rows> rows;
  LaneOfTile<D, Operand::Columns> columns;
};

// Loads 16 M rows of a tile, with all D columns, as left operands of mma.
template <int M, int D>
__device__ inline void loadRows(u32 (&a)[M][D / 16][4], u32 tile, const Lane<D> &lane) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      loadMatrix4(a[m][k], tile + lane.rows.at(16 * m, k));
}

// Computes d[16 M, 8 N] += a b^T over columns [16 k, 16 k + 16). `b` is a shared address.
template <int M, int N, int D>
__device__ inline void multiplySlice(float (&d)[M][N][4], const u32 (&a)[M][4], u32 b, int k,
                                     const Lane<D> &lane) {
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    u32 right[4];
    loadMatrix4(right, b + lane.columns.at(8 * n, k));
#pragma unroll
    for (int m = 0; m < M; ++m) {
      multiplyAdd16x8x16(d[m][n], a[m], right[0], right[1]);
      multiplyAdd16x8x16(d[m][n + 1], a[m], right[2], right[3]);
    }
  }
}

// Computes d[16 M, 8 N] += a b^T over all D columns. `a` and `b` are addresses in shared memory.
template <int M, int N, int D>
__device__ inline void multiplyRows(float (&d)[M][N][4], u32 a, u32 b,
                                    const Lane<D> &lane) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    u32 left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
      loadMatrix4(left[m], a + lane.rows.at(16 * m, k));
    multiplySlice<M, N, D>(d, left, b, k, lane);
  }
}

// As above, but `a` is in registers, which loadRows has filled.
template <int M, int N, int D>
__device__ inline void multiplyRows(float (&d)[M][N][4], const u32 (&a)[M][D / 16][4], u32 b,
                                    const Lane<D> &lane) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    u32 left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[m][i] = a[m][k][i];
    multiplySlice<M, N, D>(d, left, b, k, lane);
  }
}

// Computes d[16 M, D] += a b, where b is the first 16 K rows of a tile.
template <int M, int K, int D>
__device__ inline void multiplyColumns(float (&d)[M][D / 8][4], const u32 (&a)[M][K][4],
                                       u32 b, const Lane<D> &lane) {
#pragma unroll
  for (int k = 0; k < K; ++k)
#pragma unroll
    for (int n = 0; n < D / 8; n += 2) {
      u32 right[4];
      loadMatrix4Transposed(right, b + lane.rows.at(16 * k, n / 2));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiplyAdd16x8x16(d[m][n], a[m][k], right[0], right[1]);
        multiplyAdd16x8x16(d[m][n + 1], a[m][k], right[2], right[3]);
      }
    }
}

// Sets masked scores to minus infinity. s[i, j] is the score of query firstQuery + i and key
// firstKey + j. Scores of rows past the end of the sequence may or may not be masked.
template <typename Shape, int M, int N>
__device__ inline void maskRows(float (&s)[M][N][4], const i32 *starts, int firstQuery,
                                int firstKey) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      int i = firstQuery + 16 * m + 8 * half + lane / 4, lowest = 0;
      if constexpr (hasFirstKey<Shape>())
        lowest = firstKeyOf<Shape>(starts, lesser(i, Shape::seq - 1));
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          int j = firstKey + 8 * n + lane % 4 * 2 + e;
          bool visible = j <= i;
          if constexpr (hasFirstKey<Shape>())
            visible = visible && j >= lowest;
          s[m][n][2 * half + e] = visible ? s[m][n][2 * half + e] : -infinity();
        }
    }
}

// Rounds the results of an mma to bf16, in the layout of the left operand of the next mma.
template <int M, int N>
__device__ inline void toOperand(u32 (&a)[M][N / 2][4], const float (&d)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n) {
      a[m][n / 2][n % 2 * 2] = packBf16(d[m][n][0], d[m][n][1]);
      a[m][n / 2][n % 2 * 2 + 1] = packBf16(d[m][n][2], d[m][n][3]);
    }
}

template <int M, int N> __device__ inline void clear(float (&d)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        d[m][n][e] = 0;
}

// Returns the sum over the four lanes that hold a row of an mma's result.
__device__ inline float rowSum(float x) {
  x += __shfl_xor_sync(kFullWarp, x, 1);
  return x + __shfl_xor_sync(kFullWarp, x, 2);
}
__device__ inline float rowMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kFullWarp, x, 1));
  return fmaxf(x, __shfl_xor_sync(kFullWarp, x, 2));
}

// The number of elements from the largest values of a row of dq, dk and dv to those of the next row.
template <typename Shape> constexpr int kLargestPitch = Shape::heads + 2 * Shape::kvHeads;

// With Shape::largest, stores the largest absolute value of each of the 16 M rows of heads that an mma
// left in `d`, rounded to bf16. The rows are those of the block's sequence and head from row `first` on.
// A row of `largest` has Pitch elements; that of head 0 is at `column`. ByKeys: the heads are those of
// keys. Tiles and Together are those of workOf(). The whole warp must call it.
template <typename Shape, bool ByKeys, int Tiles, int Together, int Pitch, int M, int N>
__device__ inline void storeLargest(const float (&d)[M][N][4], float *largest, int column,
                                    int first) {
  if constexpr (Shape::largest) {
    const Work work = workAgain<Shape::batch, ByKeys ? Shape::kvHeads : Shape::heads, Tiles,
                                Together, !ByKeys>();
    largest += i64(work.batch) * Shape::seq * Pitch + column + work.head;
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float most = 0;
#pragma unroll
        for (int n = 0; n < Shape::headDim / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e)
            most = maximum(fabsf(d[m][n][e]), most);
#pragma unroll
        for (int other = 1; other < 4; other *= 2)
          most = maximum(__shfl_xor_sync(kFullWarp, most, other), most);
        const int row = first + 16 * m + 8 * half + lane / 4;
        if (lane % 4 == 0 && row < Shape::seq)
          storeOne(largest + i64(row) * Pitch, toFloat(toBf16(most)));
      }
  }
}

// Rounds results of mma to bf16 and writes them to the warp's rows of a tile in shared memory.
template <int M, int D> __device__ inline void writeTile(u8 *tile, const float (&d)[M][D / 8][4]) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < D / 8; ++n)
        *reinterpret_cast<u32 *>(tile + chunkOffset<D>(16 * m + 8 * half + lane / 4, n) +
                                 lane % 4 * 4) =
            packBf16(d[m][n][2 * half], d[m][n][2 * half + 1]);
}

} // namespace lmc::attention
