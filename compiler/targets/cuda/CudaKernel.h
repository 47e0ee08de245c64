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
  // Traffic of one launch; each byte that is read or written counts once, as in KernelShape.
  GlobalBytes bytes;
  // Additional traffic if rows do not fit the registers: later passes read a row again, and sums
  // over blocks of rows are read and written once per row.
  GlobalBytes again;
  // True if the CUDA compiler may fuse multiply-adds. False for printed kernels, whose rounding
  // must not depend on the ops that share the kernel.
  bool contract = false;
};

// Where later passes find a row that is too long for the registers of its thread block.
enum class LongRows {
  Shared, // a block keeps as much of the row as fits in an SM's shared memory
  Again,  // two blocks share an SM, and every pass reads the row from L2 cache or global memory
  Alone,  // a block has an SM alone, so that the rows of all blocks fit into the L2 cache
};

// Returns the kind named "shared", "again" or "alone"; nothing for another name.
std::optional<LongRows> longRowsOf(llvm::StringRef name);

// What the text of a kernel depends on besides its op.
struct CudaPrinting {
  LongRows longRows = LongRows::Shared;
  uint32_t sharedBytesPerBlock = 232448; // the default is the limit of sm_90
  uint32_t sharedBytesPerSm = 233472;
};

// Prints `kernel` as CUDA C++. Fails for a kernel that the analysis of Hero.h rejects.
llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel, const CudaPrinting &how = {});

} // namespace lmc::codegen
