// A matrix product over packed panels (Goto and van de Geijn, "Anatomy of High-Performance Matrix
// Multiplication", 2008). Packing also converts elements to the type of arithmetic, so that a
// product of bf16 is nearly as fast as one of f32.
#include "runtime/device/cpu/kernels/Block.h"
#include "runtime/device/cpu/kernels/Functions.h"
#include "runtime/device/cpu/kernels/Micro.h"

namespace lmc::cpu::LMC_ISA {
namespace {

// Packs one panel of A: panel[k][r] = from[r][k] for r < rows.
template <typename T, typename R = Arithmetic<T>>
void packRows(const T *from, int64_t leading, int64_t rows, int64_t depth, R *panel) {
  int64_t k = 0;
  constexpr int kN = kWidth<R>;
  if constexpr (kN >= kTileRows) {
    // A store also writes zeros after the last row. The store of the next k overwrites these zeros.
    if (rows == kTileRows)
      for (; k + kN <= depth; k += kN) {
        V<R> square[kN];
#pragma GCC unroll 16
        for (int r = 0; r < kN; ++r)
          square[r] = r < kTileRows ? load(from + r * leading + k) : V<R>{};
        transpose<R>(square);
#pragma GCC unroll 16
        for (int i = 0; i < kN; ++i)
          store(panel + (k + i) * kTileRows, square[i]);
      }
  }
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = k; i < depth; ++i)
      panel[i * kTileRows + r] = toReal(from[r * leading + i]);
}

// Packs a block of A into panels [depth][kTileRows]; rows beyond the end of the block become zero.
template <typename T> void packA(const PackArgs &args, void *memory) {
  using R = Arithmetic<T>;
  const T *source = static_cast<const T *>(args.source);
  R *panel = static_cast<R *>(memory);
  const int64_t depth = args.columns;
  for (int64_t row = 0; row < args.rows; row += kTileRows, panel += depth * kTileRows) {
    const int64_t rows = lesser(kTileRows, args.rows - row);
    if (rows < kTileRows)
      memset(static_cast<void *>(panel), 0, size_t(depth * kTileRows) * sizeof(R));
    if (args.transposed) {
      const T *from = source + args.firstColumn * args.leading + args.firstRow + row;
      if (rows == kTileRows)
        for (int64_t k = 0; k < depth; ++k)
          for (int64_t r = 0; r < kTileRows; ++r)
            panel[k * kTileRows + r] = toReal(from[k * args.leading + r]);
      else
        for (int64_t k = 0; k < depth; ++k)
          for (int64_t r = 0; r < rows; ++r)
            panel[k * kTileRows + r] = toReal(from[k * args.leading + r]);
    } else {
      packRows(source + (args.firstRow + row) * args.leading + args.firstColumn, args.leading, rows,
               depth, panel);
    }
  }
}

// Packs a block of B into panels [depth][kTileColumns]; columns beyond the end of the block become
// zero.
template <typename T> void packB(const PackArgs &args, void *memory) {
  using R = Arithmetic<T>;
  constexpr int64_t kColumns = kTileColumns<R>;
  const T *source = static_cast<const T *>(args.source);
  R *panel = static_cast<R *>(memory);
  const int64_t depth = args.rows;
  for (int64_t column = 0; column < args.columns; column += kColumns, panel += depth * kColumns) {
    const int64_t columns = lesser(kColumns, args.columns - column);
    if (args.transposed)
      transposeBlock(source + (args.firstColumn + column) * args.leading + args.firstRow,
                     args.leading, columns, depth, kColumns, R(1), panel, kColumns);
    else
      copyBlock(source + args.firstRow * args.leading + args.firstColumn + column, args.leading,
                depth, columns, kColumns, panel, kColumns);
  }
}

template <typename R>
void multiply(const void *a, const void *b, int64_t rows, int64_t columns, int64_t depth,
              void *sums, int64_t leading, Sums mode, Prefetch &prefetch) {
  multiplyPanels(static_cast<const R *>(a), static_cast<const R *>(b), rows, columns, depth,
                 static_cast<R *>(sums), leading, mode, prefetch,
                 [&](int height, const R *left, const R *right, R *to, int64_t ldc, bool add) {
                   tileOf<R, Layout::ColumnMajor, 2>(height, depth, left, kTileRows, right,
                                                     kTileColumns<R>, to, ldc, add);
                 });
}

template <typename R> R biasAt(const StoreArgs &args, int64_t column) {
  switch (args.biasStorage) {
  case Storage::F32:
    return R(static_cast<const float *>(args.bias)[column]);
  case Storage::BF16:
    return R(toReal(static_cast<const Bf16 *>(args.bias)[column]));
  case Storage::F64:
    return R(static_cast<const double *>(args.bias)[column]);
  }
  return 0;
}

template <typename T> void storeSums(const StoreArgs &args) {
  using R = Arithmetic<T>;
  for (int64_t row = 0; row < args.rows; ++row) {
    const R *sums = static_cast<const R *>(args.sums) + row * args.sumsLeading;
    T *d = static_cast<T *>(args.d) + row * args.dLeading;
    if (!args.bias && !args.addToD) {
      storeBlock(sums, 0, 1, args.columns, R(1), d, 0);
      continue;
    }
    for (int64_t column = 0; column < args.columns; ++column) {
      R value = sums[column];
      if (args.bias)
        value += biasAt<R>(args, column);
      if (args.addToD)
        value += toReal(d[column]);
      fromReal(value, d[column]);
    }
  }
}

} // namespace

template <typename T> PackedGemmKernels packedGemm() {
  using R = Arithmetic<T>;
  return {kTileRows, kTileColumns<R>, sizeof(R),   sizeof(R),   1,
          packA<T>,  packB<T>,        multiply<R>, storeSums<T>};
}

template PackedGemmKernels packedGemm<float>();
template PackedGemmKernels packedGemm<Bf16>();
template PackedGemmKernels packedGemm<double>();

} // namespace lmc::cpu::LMC_ISA
