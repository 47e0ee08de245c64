// The CPU kernels that oneDNN does not give: attention, its gradient, and a
// packed matrix product for the types that the machine has no instructions for.
//
// Every source of this folder is compiled once per instruction set (see
// runtime/device/layer.cmake) into a namespace of its own; `kernelSet()` picks the
// widest that the machine runs. To keep code of a wide set from leaking into
// the program through shared inline functions, these sources include nothing of
// the C++ library beyond <cstdint>, <cstddef> and <cstring>.
//
// No kernel starts threads. Work is cut into tasks whose results do not depend
// on the thread that runs them, nor on how many there are.
#pragma once

#include "runtime/device/cpu/kernels/Attention.h"

namespace lmc::cpu {

// A block of a matrix to be packed: element (row, column) is at
// source[row * leading + column], or, transposed, source[column * leading + row].
struct PackArgs {
  const void *source;
  int64_t leading;
  bool transposed;
  int64_t firstRow, rows;
  int64_t firstColumn, columns;
};

// Writes finished sums: d = sums (+ bias) (+ d), with d's storage.
struct StoreArgs {
  const void *sums;
  int64_t sumsLeading;
  void *d;
  int64_t dLeading;
  int64_t rows, columns;
  const void *bias; // of the columns, or null
  Storage biasStorage;
  bool addToD;
};

// One storage type's packed product. A is packed in panels of `panelRows` rows,
// B in panels of `panelColumns` columns, both converted to the arithmetic type.
struct PackedGemmKernels {
  int panelRows, panelColumns;
  size_t arithmeticWidth; // bytes of an element of the packed panels and sums
  void (*packA)(const PackArgs &args, void *packed);
  void (*packB)(const PackArgs &args, void *packed);
  // sums[rows, columns] = A B, or += with `add`.
  void (*multiply)(const void *a, const void *b, int64_t rows, int64_t columns, int64_t depth,
                   void *sums, int64_t leading, bool add);
  // Sums to an operand of this type.
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

// The widest set that this machine runs.
const KernelSet &kernelSet();

// All sets that this machine runs, narrowest first; `count` of them.
const KernelSet *const *kernelSets(int &count);

} // namespace lmc::cpu
