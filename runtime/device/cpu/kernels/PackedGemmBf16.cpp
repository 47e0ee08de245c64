// The packed product of bf16 matrices by the instruction VDPBF16PS (AVX512_BF16). The instruction
// adds two products of bf16 to each of 16 sums in f32, and treats subnormal numbers as zeros.
//
// Elements are packed in pairs: the elements k and k + 1, with even k, of one row of A or of one
// column of B. A panel of A is [depth / 2][kTileRows] pairs, a panel of B [depth / 2][32] pairs.
#include "runtime/device/cpu/kernels/Block.h"
#include "runtime/device/cpu/kernels/Functions.h"
#include "runtime/device/cpu/kernels/Micro.h"

#if defined(__AVX512F__)

namespace lmc::cpu::LMC_ISA {
namespace {

constexpr int kColumns = kTileColumns<float>;
constexpr int kPairs = kWidth<float>; // in a register

typedef int Words __attribute__((vector_size(64)));
typedef int UnalignedWords __attribute__((vector_size(64), aligned(2), may_alias));
typedef short Halves __attribute__((vector_size(64)));
typedef short UnalignedHalves __attribute__((vector_size(64), aligned(2), may_alias));

LMC_INLINE uint32_t pair(Bf16 first, Bf16 second) {
  return uint32_t(first.bits) | uint32_t(second.bits) << 16;
}

// Sets to[k][r] to pair k of row r of `from`, for r < rows. Each row of `to` has `Leading` pairs.
// Each row of `from` has `depth` elements. If `depth` is odd, a zero completes the last pair.
template <int Leading>
LMC_INLINE void transposePairs(const Bf16 *from, int64_t leading, int64_t rows, int64_t depth,
                               uint32_t *to) {
  int64_t k = 0;
  // A register may have more pairs than `to` has rows. Then a store also writes zeros after the
  // pairs, which the store of the next k overwrites.
  if (rows == (Leading < kPairs ? Leading : kPairs))
    for (; k + kPairs <= depth / 2; k += kPairs) {
      V<float> square[kPairs];
#pragma GCC unroll 16
      for (int r = 0; r < kPairs; ++r)
        square[r] =
            r < Leading
                ? (V<float>)*reinterpret_cast<const UnalignedWords *>(from + r * leading + 2 * k)
                : V<float>{};
      transpose<float>(square);
#pragma GCC unroll 16
      for (int i = 0; i < kPairs; ++i)
        *reinterpret_cast<UnalignedWords *>(to + (k + i) * Leading) = (Words)square[i];
    }
  for (int64_t r = 0; r < rows; ++r) {
    const Bf16 *row = from + r * leading;
    for (int64_t i = k; i < depth / 2; ++i)
      to[i * Leading + r] = pair(row[2 * i], row[2 * i + 1]);
    if (depth % 2)
      to[depth / 2 * Leading + r] = pair(row[depth - 1], Bf16{0});
  }
}

// Sets to[k][c] to the pair (from[2 k][c], from[2 k + 1][c]) for c < columns. Each row of `to` has
// `Leading` pairs. If `depth` is odd, zeros complete the last pairs.
template <int Leading>
LMC_INLINE void interleaveRows(const Bf16 *from, int64_t leading, int64_t columns, int64_t depth,
                               uint32_t *to) {
  Halves low{}, high{};
#pragma GCC unroll 32
  for (int i = 0; i < 32; ++i) {
    low[i] = short(i / 2 + (i % 2 ? 32 : 0));
    high[i] = short(16 + i / 2 + (i % 2 ? 32 : 0));
  }
  for (int64_t k = 0; k < depth / 2; ++k) {
    const Bf16 *first = from + 2 * k * leading, *second = first + leading;
    uint32_t *target = to + k * Leading;
    if (Leading == 32 && columns == 32) {
      const Halves a = *reinterpret_cast<const UnalignedHalves *>(first);
      const Halves b = *reinterpret_cast<const UnalignedHalves *>(second);
      *reinterpret_cast<UnalignedHalves *>(target) = __builtin_shuffle(a, b, low);
      *reinterpret_cast<UnalignedHalves *>(target + 16) = __builtin_shuffle(a, b, high);
    } else if (columns == Leading) {
      for (int c = 0; c < Leading; ++c)
        target[c] = pair(first[c], second[c]);
    } else {
      for (int64_t c = 0; c < columns; ++c)
        target[c] = pair(first[c], second[c]);
    }
  }
  if (depth % 2)
    for (int64_t c = 0; c < columns; ++c)
      to[depth / 2 * Leading + c] = pair(from[(depth - 1) * leading + c], Bf16{0});
}

void packA(const PackArgs &args, void *memory) {
  const Bf16 *source = static_cast<const Bf16 *>(args.source);
  uint32_t *panel = static_cast<uint32_t *>(memory);
  const int64_t pairs = (args.columns + 1) / 2;
  for (int64_t row = 0; row < args.rows; row += kTileRows, panel += pairs * kTileRows) {
    const int64_t rows = lesser(kTileRows, args.rows - row);
    if (rows < kTileRows)
      memset(panel, 0, size_t(pairs * kTileRows) * sizeof(uint32_t));
    if (args.transposed)
      interleaveRows<kTileRows>(source + args.firstColumn * args.leading + args.firstRow + row,
                                args.leading, rows, args.columns, panel);
    else
      transposePairs<kTileRows>(source + (args.firstRow + row) * args.leading + args.firstColumn,
                                args.leading, rows, args.columns, panel);
  }
}

void packB(const PackArgs &args, void *memory) {
  const Bf16 *source = static_cast<const Bf16 *>(args.source);
  uint32_t *panel = static_cast<uint32_t *>(memory);
  const int64_t pairs = (args.rows + 1) / 2;
  for (int64_t column = 0; column < args.columns; column += kColumns, panel += pairs * kColumns) {
    const int64_t columns = lesser(kColumns, args.columns - column);
    if (columns < kColumns)
      memset(panel, 0, size_t(pairs * kColumns) * sizeof(uint32_t));
    if (!args.transposed) {
      interleaveRows<kColumns>(source + args.firstRow * args.leading + args.firstColumn + column,
                               args.leading, columns, args.rows, panel);
      continue;
    }
    const Bf16 *from = source + (args.firstColumn + column) * args.leading + args.firstRow;
    for (int64_t c = 0; c < columns; c += kPairs)
      transposePairs<kColumns>(from + c * args.leading, args.leading, lesser(kPairs, columns - c),
                               args.rows, panel + c);
  }
}

#pragma GCC push_options
#pragma GCC target("avx512bf16")

// Like tile() of Micro.h, for packed pairs. `depth` is the number of pairs.
template <int Rows>
__attribute__((noinline)) void tileOfPairs(int64_t depth, const uint32_t *a, const uint32_t *b,
                                           float *c, int64_t ldc, bool add) {
  V<float> sums[Rows][2];
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
    sums[r][0] = sums[r][1] = V<float>{};
  for (int64_t k = 0; k < depth; ++k) {
    const Words right[2] = {*reinterpret_cast<const UnalignedWords *>(b),
                            *reinterpret_cast<const UnalignedWords *>(b + kPairs)};
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r) {
      const Words left = int(a[r]) - Words{};
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v)
        sums[r][v] =
            (V<float>)_mm512_dpbf16_ps((__m512)sums[r][v], (__m512bh)left, (__m512bh)right[v]);
    }
    a += kTileRows;
    b += kColumns;
  }
#pragma GCC unroll 16
  for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      float *to = c + r * ldc + v * kPairs;
      store(to, add ? load(to) + sums[r][v] : sums[r][v]);
    }
}

#pragma GCC pop_options

// Calls tileOfPairs() with `rows` rows, 1 to kTileRows.
template <int Rows = kTileRows>
void tileOfRows(int64_t rows, int64_t depth, const uint32_t *a, const uint32_t *b, float *c,
                int64_t ldc, bool add) {
  if constexpr (Rows > 1)
    if (rows < Rows)
      return tileOfRows<Rows - 1>(rows, depth, a, b, c, ldc, add);
  tileOfPairs<Rows>(depth, a, b, c, ldc, add);
}

void multiply(const void *a, const void *b, int64_t rows, int64_t columns, int64_t depth,
              void *sums, int64_t leading, Sums mode, Prefetch &prefetch) {
  const int64_t pairs = (depth + 1) / 2;
  multiplyPanels(static_cast<const uint32_t *>(a), static_cast<const uint32_t *>(b), rows, columns,
                 pairs, static_cast<float *>(sums), leading, mode, prefetch,
                 [&](int height, const uint32_t *left, const uint32_t *right, float *to,
                     int64_t ldc,
                     bool add) { tileOfRows(height, pairs, left, right, to, ldc, add); });
}

} // namespace

PackedGemmKernels withBf16Products(PackedGemmKernels kernels) {
  kernels.packedWidth = sizeof(Bf16);
  kernels.depthUnit = 2;
  kernels.packA = packA;
  kernels.packB = packB;
  kernels.multiply = multiply;
  return kernels;
}

} // namespace lmc::cpu::LMC_ISA

#endif
