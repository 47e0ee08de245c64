// Small kernels, and NVRTC where this machine has it.
#pragma once

#include "compiler/targets/cuda/nvrtc/Nvrtc.h"

#include <gtest/gtest.h>

namespace lmc::codegen {

// y[i] = factor x[i] of 256 f32.
inline CudaKernel scaleKernel(const std::string &name, double factor) {
  CudaKernel kernel;
  kernel.name = name;
  kernel.hero = "elementwise";
  kernel.threads = 256;
  kernel.source = "#include \"lmc/vector_io.cuh\"\n"
                  "extern \"C\" __global__ void " +
                  name +
                  "(const float *x, float *y) {\n"
                  "  lmc::storeOne(y + threadIdx.x, " +
                  std::to_string(factor) + "f * lmc::loadOne(x + threadIdx.x));\n}\n";
  return kernel;
}

// Skips the test, and says why, where there is no NVRTC.
#define LMC_REQUIRE_NVRTC()                                                                        \
  if (auto nvrtc = lmc::codegen::Nvrtc::get(); !nvrtc)                                             \
  GTEST_SKIP() << llvm::toString(nvrtc.takeError())

} // namespace lmc::codegen
