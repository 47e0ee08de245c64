// The CPU kernels that oneDNN does not provide: attention, its gradient, and a packed matrix
// product for types without fast instructions on the machine.
//
// Every source of this folder is compiled once per instruction set (see
// runtime/device/layer.cmake), each time into another namespace; `kernelSet()` selects the widest
// set that the machine supports. These sources include nothing of the C++ library except <cstdint>,
// <cstddef> and <cstring>: otherwise the linker could pick an inline function compiled for a wide
// set for the whole program.
//
// No kernel starts threads. Work is divided into tasks. Their results depend neither on the thread
// that runs them nor on the number of threads.
#pragma once

#include "runtime/device/cpu/kernels/Attention.h"

namespace lmc::cpu {

// A block of a matrix to pack. Element (row, column) is at source[row * leading + column], or, if
// transposed, at source[column * leading + row].
struct PackArgs {
  const void *source;
  int64_t leading;
  bool transposed;
  int64_t firstRow, rows;
  int64_t firstColumn, columns;
};

// Converts finished sums: d = sums (+ bias) (+ d), in d's storage type.
struct StoreArgs {
  const void *sums;
  int64_t sumsLeading;
  void *d;
  int64_t dLeading;
  int64_t rows, columns;
  const void *bias; // per column, or null
  Storage biasStorage;
  bool addToD;
};

// The packed product of one storage type. A is packed in panels of `panelRows` rows, B in panels of
// `panelColumns` columns; both are converted to the arithmetic type.
struct PackedGemmKernels {
  int panelRows, panelColumns;
  size_t arithmeticWidth; // bytes of an element of the packed panels and sums
  void (*packA)(const PackArgs &args, void *packed);
  void (*packB)(const PackArgs &args, void *packed);
  // sums[rows, columns] = A B, or += if `add`.
  void (*multiply)(const void *a, const void *b, int64_t rows, int64_t columns, int64_t depth,
                   void *sums, int64_t leading, bool add);
  // Converts sums to this storage type.
  void (*store)(const StoreArgs &args);
};

struct KernelSet {
  const char *name; // "x86-64-v3"

  // Indexed by Storage.
  AttentionKernels attention[3];
  PackedGemmKernels gemm[3];

  // e[i] = 2^x[i], as attention computes it (for tests); x <= 127.
  void (*exp2F32)(const float *x, float *e, int64_t n);
  void (*exp2F64)(const double *x, double *e, int64_t n);
};

// Returns the widest set that this machine supports.
const KernelSet &kernelSet();

// Returns all sets that this machine supports, narrowest first; sets `count` to their number.
const KernelSet *const *kernelSets(int &count);

} // namespace lmc::cpu
