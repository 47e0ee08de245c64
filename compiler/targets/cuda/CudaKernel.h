// A kernel as CUDA C++ text, and how it is launched.
#pragma once

#include "dialects/kern/Kern.h"

#include <array>
#include <string>

namespace lmc::codegen {

// Bytes of global memory.
struct GlobalBytes {
  uint64_t read = 0, written = 0;
};

// The source includes headers of compiler/targets/cuda/device as "lmc/NAME.cuh", and defines
// `extern "C" __global__ void NAME(...)`. Its parameters are pointers only, in the order of
// the launch's arguments (inputs, then results); all shapes are constants of the text.
struct CudaKernel {
  std::string name;
  std::string hero; // "row_reduction", or a template's name: "attention_forward"
  std::string source;
  std::array<uint32_t, 3> grid = {1, 1, 1}; // blocks
  uint32_t threads = 1;                     // of a block, a multiple of 32
  uint32_t sharedBytes = 0;                 // dynamic shared memory of a block
  // Of a launch, in which every byte that is touched counts once, as in KernelShape.
  GlobalBytes bytes;
  // What goes on top where a row is longer than registers hold: later passes read it again, and
  // sums of rows are read and written in their place in memory.
  GlobalBytes again;
  // Whether the compiler may fuse multiply-adds other than those the text has as fmaf. Not in
  // printed kernels: rounding would depend on what was fused with what.
  bool contract = false;
};

// What a kernel may count on. Numbers are per SM, from the CUDA C++ Programming Guide's table
// of compute capabilities.
struct CudaArch {
  std::string name; // "sm_90a"
  unsigned version; // 90
  unsigned sharedBytesPerBlock;
  unsigned sharedBytesPerSm;
  unsigned threadsPerSm;
  unsigned blocksPerSm;
};

// All that code is generated for, oldest first: sm_80 and later.
llvm::ArrayRef<CudaArch> cudaArchs();

// Null for others.
const CudaArch *findCudaArch(llvm::StringRef name);

// How many blocks of `threads` threads are on an SM at once, by registers of a thread and shared
// memory of a block; 0: not even one.
unsigned residentBlocks(const CudaArch &arch, unsigned threads, unsigned registers,
                        unsigned sharedBytes);

// `kernel` as CUDA C++; the text says what it computes, its shapes and its source ops. Failure
// with the reason for what the analysis of Hero.h refuses. One text serves every architecture.
mlir::FailureOr<CudaKernel> printCudaKernel(kern::KernelOp kernel, std::string *reason);

} // namespace lmc::codegen
