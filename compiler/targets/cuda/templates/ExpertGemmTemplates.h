// Generates the kernels that multiply rows by their expert's matrix, from expert_gemm.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

namespace lmc::codegen {

// The shape of y = x w^T: x [rows, inner], w [experts, columns, inner] ([experts, inner, columns]
// if `transposed`), y [rows, columns], all of `type`; offsets i32 [experts + 1]. The gradient of w
// has dy [rows, columns], x [rows, inner], d [experts, columns, inner] in sumType().
struct ExpertGemmShape {
  int64_t rows = 0, experts = 0, inner = 0, columns = 0;
  DataType type = DataType::BF16;
  bool transposed = false; // never true for the gradient
  bool accumulate = false; // only for the gradient: true if the gradient is added to d
  bool warpgroups = false; // true: wgmma (only on sm_90a) computes the products of isTiled() shapes
  // The number of persistent thread blocks (only with warpgroups); 0: one block per tile.
  int64_t blocks = 0;

  DataType sumType() const { return type == DataType::F64 ? DataType::F64 : DataType::F32; }
  // Tile sizes with and without tensor cores, and the maximum columns of a tile with wgmma.
  static constexpr int64_t kTile = 128, kPlainTile = 32, kGroupColumns = 256;
  // True if tensor cores compute the products.
  bool isTiled() const { return type == DataType::BF16 && inner % 8 == 0 && columns % 8 == 0; }
};

// Returns the kernel of y; arguments x, w, offsets, y. Its traffic includes all experts' matrices.
CudaKernel expertGemmKernel(const ExpertGemmShape &shape);

// Returns the kernel of the gradient of the matrices, with the arguments dy, x, offsets, d.
CudaKernel expertGemmGradKernel(const ExpertGemmShape &shape);

} // namespace lmc::codegen
