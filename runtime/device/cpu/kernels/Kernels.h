// The CPU kernels of this program: attention, its gradient, and a packed matrix product.
//
// Every source file of this folder is compiled once per instruction set
// (runtime/device/layer.cmake), each time into another namespace. From the C++ library, these files
// include only <cstdint>, <cstddef> and <cstring>. Other headers have inline functions, and the
// linker could use a copy compiled for wide vectors in the whole program.
//
// No kernel starts threads. Work is divided into tasks, whose results do not depend on threads.
#pragma once

#include "runtime/device/cpu/kernels/Attention.h"

namespace lmc::cpu {

// A block of a matrix to pack. Element (row, column) is source[row * leading + column]; if
// `transposed`, source[column * leading + row].
struct PackArgs {
  const void *source;
  int64_t leading;
  bool transposed;
  int64_t firstRow, rows;
  int64_t firstColumn, columns;
};

// PackedGemmKernels::store computes d = sums, plus the bias if there is one, plus d if `addToD`.
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

// Memory that will be read soon. It has `rows` rows of `bytes` bytes, `leading` bytes apart. Before
// each tile of a product, step() fetches `linesPerTile` of its lines into the second-level cache.
struct Prefetch {
  const char *at = nullptr;
  int64_t leading = 0, rows = 0, bytes = 0, linesPerTile = 0;
  int64_t row = 0, byte = 0; // the next cache line to fetch

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

// Replace: the product overwrites d. Add: the product is added to d. Stream: the product overwrites
// d, which exceeds the caches, by stores that bypass them; each row of d must be whole cache lines.
enum class Sums { Replace, Add, Stream };

// The functions of the packed matrix product A B for one storage type. A is packed in panels of
// `panelRows` rows, B in panels of `panelColumns` columns. Packing may convert elements to the type
// of arithmetic.
struct PackedGemmKernels {
  int panelRows, panelColumns;
  size_t arithmeticWidth; // bytes of a sum
  size_t packedWidth;     // bytes of a packed element
  int depthUnit;          // panels are padded with zeros to a multiple of this depth
  // packA() may write up to 64 bytes after the last panel; `packed` must have room for them.
  void (*packA)(const PackArgs &args, void *packed);
  void (*packB)(const PackArgs &args, void *packed);
  // Computes sums[rows, columns] = A B or, with Sums::Add, += A B. A and B are packed.
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

  // Compute e[i] = 2^x[i] by exp2() of Vector.h, for x[i] <= 127 in f32 and x[i] <= 1023 in f64.
  void (*exp2F32)(const float *x, float *e, int64_t n);
  void (*exp2F64)(const double *x, double *e, int64_t n);
};

// Returns the kernel set that LMC_CPU_ISA names, or the one with the widest vectors.
const KernelSet &kernelSet();

} // namespace lmc::cpu
