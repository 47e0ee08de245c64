// Generates kernels of matrix products with SwiGLU or its gradient (swiglu.cuh, swiglu_gemm.cuh).
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"

namespace lmc::codegen {

// The shape of [g | u] = x w^T, a = silu(g) u: x [rows, inner], w [2 columns, inner], gu [rows, 2
// columns], a [rows, columns], all bf16. The gradient d = dy w has dy [rows, inner], w [inner,
// columns], gu and dgu [rows, 2 columns], a [rows, columns].
struct SwigluGemmShape {
  int64_t rows = 0, inner = 0, columns = 0;
  bool both = true;   // true: also stores gu; for the gradient: also stores a
  int64_t blocks = 1; // maximum number of blocks: the number of SMs of the GPU

  // True if there are kernels for this shape: matrix rows take a multiple of 16 bytes each.
  bool isTiled() const { return inner % 8 == 0 && columns % 8 == 0; }
};

// `rows` runs after a library's matrix product. `whole` also computes the product (by warpgroups).
struct SwigluGemmKernels {
  CudaKernel rows;  // arguments: gu, a; of the gradient: d, gu, dgu, a
  CudaKernel whole; // arguments: x, w, gu, a; of the gradient: dy, w, gu, dgu, a
};
// Returns the kernels with the names NAME_rows and NAME.
SwigluGemmKernels linearSwigluKernels(const SwigluGemmShape &shape, const std::string &name);
SwigluGemmKernels swigluLinearGradKernels(const SwigluGemmShape &shape, const std::string &name);

} // namespace lmc::codegen
