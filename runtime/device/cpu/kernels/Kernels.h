// The CPU kernels that oneDNN does not provide: attention, its gradient, and a packed matrix
// product for types for which the machine has no fast instructions.
//
// Every source file of this folder is compiled once per instruction set
// (runtime/device/layer.cmake), each time into another namespace; kernelSet() selects the set with
// the widest vectors that the machine supports. These files include nothing of the C++ library
// except <cstdint>, <cstddef> and <cstring>: otherwise the linker could use an inline function that
// was compiled for wide vectors in the whole program.
//
// No kernel starts threads. Work is divided into tasks, whose results depend neither on the thread
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

// The arguments of PackedGemmKernels::store: d = sums (+ bias) (+ d), in the storage type of d.
struct StoreArgs {
  const void *sums;
  int64_t sumsLeading;
  void *d;
  int64_t dLeading;
  int64_t rows, columns;
  const void *bias; // one element per column of d, or null
  Storage biasStorage;
  bool addToD;
};

// Memory that will be read soon: `rows` rows of `bytes` bytes, `leading` bytes apart. While a
// product is computed, `linesPerTile` of its cache lines are fetched into the second-level cache
// for each tile, so that the memory works while the multipliers do.
struct Prefetch {
  const char *at = nullptr;
  int64_t leading = 0, rows = 0, bytes = 0, linesPerTile = 0;
  int64_t row = 0, byte = 0; // what comes next

  void step() {
    for (int64_t i = 0; i < linesPerTile && row < rows; ++i) {
      __builtin_prefetch(at + row * leading + byte, 0, 2);
      byte += 64;
      if (byte >= bytes) {
        byte = 0;
        ++row;
      }
    }
  }
};

// What a product does with sums: it replaces them, adds to them, or replaces them past the caches.
// The last is for sums that are larger than the caches and start at multiples of 64 bytes, in rows
// of whole cache lines: a line is then not read from memory before it is written.
enum class Sums { Replace, Add, Stream };

// The functions of the packed matrix product A B for one storage type. A is packed in panels of
// `panelRows` rows, B in panels of `panelColumns` columns. The elements of both are converted to
// the type of arithmetic, unless the instructions of the set multiply the storage type.
struct PackedGemmKernels {
  int panelRows, panelColumns;
  size_t arithmeticWidth; // bytes of a sum
  size_t packedWidth;     // bytes of a packed element
  int depthUnit;          // the depth of a panel is filled up with zeros to a multiple of this
  // Packing A may write 64 bytes behind the last panel.
  void (*packA)(const PackArgs &args, void *packed);
  void (*packB)(const PackArgs &args, void *packed);
  // Computes sums[rows, columns] = A B, or adds A B to them. A and B are packed.
  void (*multiply)(const void *a, const void *b, int64_t rows, int64_t columns, int64_t depth,
                   void *sums, int64_t leading, Sums mode, Prefetch &prefetch);
  // Converts finished sums to the storage type and stores them in d.
  void (*store)(const StoreArgs &args);
};

struct KernelSet {
  const char *name; // "x86-64-v3", "x86-64-v4-bf16"

  // Both arrays are indexed by Storage.
  AttentionKernels attention[3];
  PackedGemmKernels gemm[3];

  // Computes e[i] = 2^x[i] for x[i] <= 127, with the function that attention uses.
  void (*exp2F32)(const float *x, float *e, int64_t n);
  void (*exp2F64)(const double *x, double *e, int64_t n);
};

// Returns the kernel set that LMC_CPU_ISA names, or the one with the widest vectors that this
// machine supports.
const KernelSet &kernelSet();

} // namespace lmc::cpu
