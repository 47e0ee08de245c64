// A kernel as CUDA C++ text, and its launch.
#pragma once

#include "compiler/kernels/Target.h"
#include "dialects/kern/Kern.h"

#include <array>
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

// Prints `kernel` as CUDA C++. The text's comment gives the formulas, the shapes and the source
// ops. Fails for a kernel that the analysis of Hero.h rejects. The text is the same for every
// architecture.
llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel);

} // namespace lmc::codegen
