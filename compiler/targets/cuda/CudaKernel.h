// A kernel as CUDA C++ text, and its launch.
#pragma once

#include "compiler/kernels/Target.h"
#include "dialects/kern/Kern.h"

#include <array>
#include <optional>
#include <string>

namespace lmc::codegen {

// The source includes compiler/targets/cuda/device/NAME.cuh as "lmc/NAME.cuh", and has all shapes
// as constants. The kernel's parameters are pointers: inputs, then results.
struct CudaKernel {
  std::string name;
  std::string hero; // "row_reduction", or a template's name: "attention_forward"
  std::string source;
  std::array<uint32_t, 3> grid = {1, 1, 1}; // number of thread blocks
  uint32_t threads = 1;                     // threads per block, a multiple of 32
  uint32_t sharedBytes = 0;                 // dynamic shared memory per block
  // The traffic of one launch. A byte counts once, even if the kernel reads it several times.
  GlobalBytes bytes;
  // The additional traffic if rows do not fit in registers. Later passes over a row then read it
  // again, and every row updates the sums over its block of rows in memory.
  GlobalBytes again;
  // True if the CUDA compiler may fuse a multiplication and an addition. False for kernels printed
  // from ops: their rounding must not depend on the other ops of the kernel.
  bool contract = false;
};

// Selects where later passes over a row find the row if it is too long for registers.
enum class LongRows {
  Shared, // a block keeps as much of the row as fits in an SM's shared memory
  Again,  // two blocks share an SM, and every pass reads the row from L2 cache or global memory
  Alone,  // a block has an SM alone, so that the rows of all blocks fit into the L2 cache
};

// Returns the LongRows with the name "shared", "again" or "alone", or nothing for another name.
std::optional<LongRows> longRowsOf(llvm::StringRef name);

// Options that affect the printed source of a kernel.
struct CudaPrinting {
  LongRows longRows = LongRows::Shared;
  uint32_t sharedBytesPerBlock = 232448; // the default is the limit of sm_90
  uint32_t sharedBytesPerSm = 233472;
};

// Prints `kernel` as CUDA C++. Fails for a kernel that the analysis of Hero.h rejects.
llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel, const CudaPrinting &how = {});

} // namespace lmc::codegen
