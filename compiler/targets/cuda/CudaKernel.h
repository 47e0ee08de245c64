// A kernel as CUDA C++ text, and its launch.
#pragma once

#include "compiler/kernels/Target.h"
#include "dialects/kern/Kern.h"

#include <array>
#include <optional>
#include <string>

namespace lmc::codegen {

// A kernel's text and launch. The source includes headers of compiler/targets/cuda/device as
// "lmc/NAME.cuh" and defines `extern "C" __global__ void NAME(...)`. All parameters are pointers,
// in the order of the launch's arguments (inputs, then results); all shapes are constants in the
// text.
struct CudaKernel {
  std::string name;
  std::string hero; // "row_reduction", or a template's name: "attention_forward"
  std::string source;
  std::array<uint32_t, 3> grid = {1, 1, 1}; // number of thread blocks
  uint32_t threads = 1;                     // threads per block, a multiple of 32
  uint32_t sharedBytes = 0;                 // dynamic shared memory per block
  // Traffic of one launch; each byte that is read or written counts once, as in KernelShape.
  GlobalBytes bytes;
  // Additional traffic of a kernel whose rows do not fit the registers: later passes read the row
  // again, and sums over blocks of rows are updated in memory.
  GlobalBytes again;
  // True if the CUDA compiler may fuse multiply-adds beyond those written as fmaf. False for
  // printed kernels: their rounding must not depend on which ops share a kernel.
  bool contract = false;
};

// How a kernel with several passes reads a row that is too long for the registers of its block. In
// all cases the columns that one pass reads last are read first by the next.
enum class LongRows {
  Shared, // a block keeps as much of the row as fits in an SM's shared memory
  Again,  // two blocks on an SM, and every pass reads the row from the L2 cache or global memory
  Alone,  // one block on an SM, so that the rows that all blocks read again fit into the L2 cache
};

// Returns the kind of a name, "shared", "again" or "alone"; nothing for another name.
std::optional<LongRows> longRowsOf(llvm::StringRef name);

// The properties, besides its op, on which the text of a kernel depends.
struct CudaPrinting {
  LongRows longRows = LongRows::Shared;
  uint32_t sharedBytesPerBlock = 232448; // the default is the limit of sm_90
  uint32_t sharedBytesPerSm = 233472;
};

// Prints `kernel` as CUDA C++. The text's comment gives the formulas, the shapes and the source
// ops. Fails for a kernel that the analysis of Hero.h rejects.
llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel, const CudaPrinting &how = {});

} // namespace lmc::codegen
