// Generates the kernels that move rows to their experts and back, from expert_rows.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// The shape of the choices and of a row: x and out [tokens, columns], y [rows(), columns] of
// `type`; weights [tokens, chosen] in realType(). With several groups, `experts` is the number of
// experts of a group, and only `held` of the group's rows are kept, from row `first` on.
struct ExpertRowsShape {
  int64_t tokens = 0, chosen = 0, experts = 0, columns = 0;
  DataType type = DataType::BF16;
  int64_t groups = 1, first = 0, held = 0; // held = 0: all rows are kept, one per choice

  DataType realType() const { return type == DataType::F64 ? DataType::F64 : DataType::F32; }
  int64_t choices() const { return tokens * chosen; }
  int64_t rows() const { return held ? held : choices(); }
  // The bytes of the workspace of the sort, a multiple of 64.
  int64_t sortBytes() const;
};

// Returns the kernels of the sort, in the order to run. Arguments of the first: experts i32
// [choices], with several groups the rank (a scalar in realType()), the workspace. Of the second:
// the same, offsets i32 [experts + 1], rows i32 [rows()], places i32 [choices].
std::vector<CudaKernel> sortRowsKernels(const ExpertRowsShape &shape);

// Computes y[r, :] = x[token of row r, :]; arguments x, rows, y.
CudaKernel takeRowsKernel(const ExpertRowsShape &shape);
// Its gradient: dx[t, :] = the sum of the rows dy of token t; arguments dy, places, dx.
CudaKernel takeRowsGradKernel(const ExpertRowsShape &shape);
// out[t, :] = the sum of weights[t, j] times choice j's row; arguments y, weights, places, out.
CudaKernel combineRowsKernel(const ExpertRowsShape &shape);
// Its gradients; arguments dout, y, weights, rows, places, dy, dweights.
CudaKernel combineRowsGradKernel(const ExpertRowsShape &shape);

// SwiGLU over rows of experts: y [tokens, columns] = silu of one half of x [tokens, 2 columns],
// times the other half, for the rows below offsets[experts]. Arguments x, offsets, y.
CudaKernel expertSwigluKernel(const ExpertRowsShape &shape);
// Its gradient; arguments dy, x, offsets, dx.
CudaKernel expertSwigluGradKernel(const ExpertRowsShape &shape);

} // namespace lmc::codegen
