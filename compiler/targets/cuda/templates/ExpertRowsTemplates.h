// Generates the kernels that sort rows by expert and move them to the experts and back, from
// expert_rows.cuh in compiler/targets/cuda/device.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// The shape of the choices and of a row: x and out [tokens, columns], y [rows(), columns] of
// `type`; weights [tokens, chosen] in realType(). With several groups of experts, `experts` is the
// number of experts in one group, and only `held` of the group's rows are kept, from row `first`
// on.
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

// Returns the kernels of the sort, in the order to run. The arguments of the first are experts i32
// [choices], with several groups the rank (a scalar in realType()), and the workspace. Those of the
// second are experts, the rank, the workspace, offsets i32 [experts + 1], rows i32 [rows()] and
// places i32 [choices].
std::vector<CudaKernel> sortRowsKernels(const ExpertRowsShape &shape);

// Computes y[r, :] = x[token of row r, :]; arguments x, rows, y.
CudaKernel takeRowsKernel(const ExpertRowsShape &shape);
// Its gradient: dx[t, :] = the sum of the rows dy of token t; arguments dy, places, dx.
CudaKernel takeRowsGradKernel(const ExpertRowsShape &shape);
// out[t, :] = the sum of weights[t, j] times the row of choice j; arguments y, weights, places,
// out.
CudaKernel combineRowsKernel(const ExpertRowsShape &shape);
// Its gradients; arguments dout, y, weights, rows, places, dy, dweights.
CudaKernel combineRowsGradKernel(const ExpertRowsShape &shape);

// SwiGLU over rows of experts, of which there is room for `tokens`; those below offsets[experts]
// belong to an expert. `chosen` is 1. y is [tokens, columns], x [tokens, 2 columns].
//
// y = silu of one half of x, times the other half; arguments x, offsets i32 [experts + 1], y.
CudaKernel expertSwigluKernel(const ExpertRowsShape &shape);
// Its gradient; arguments dy, x, offsets, dx.
CudaKernel expertSwigluGradKernel(const ExpertRowsShape &shape);

} // namespace lmc::codegen
