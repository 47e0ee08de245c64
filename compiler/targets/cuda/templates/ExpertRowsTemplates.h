// Generates the kernels that move rows to their experts and back, from expert_rows.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// Each token chooses `chosen` experts. x and out are [tokens, columns], y is [rows(), columns], all
// of `type`; weights are [tokens, chosen] in realType(). With several groups of experts, one group
// is sorted. It has `experts` experts, and only its rows [first, first + held) are kept.
struct ExpertRowsShape {
  int64_t tokens = 0, chosen = 0, experts = 0, columns = 0;
  DataType type = DataType::BF16;
  int64_t groups = 1, first = 0, held = 0; // held = 0: all rows are kept, one per choice

  DataType realType() const { return type == DataType::F64 ? DataType::F64 : DataType::F32; }
  int64_t choices() const { return tokens * chosen; }
  int64_t rows() const { return held ? held : choices(); }
  // Returns the size of the sort's workspace in bytes, a multiple of 64.
  int64_t sortBytes() const;
};

// Returns the two kernels of the sort in launch order. Arguments of the first: experts i32
// [choices], rank (a scalar in realType(), only with several groups), workspace. The second has
// these arguments, then offsets i32 [experts + 1], rows i32 [rows()], places i32 [choices].
std::vector<CudaKernel> sortRowsKernels(const ExpertRowsShape &shape);

// Computes y[r, :] = x[token of row r, :]; arguments x, rows, y.
CudaKernel takeRowsKernel(const ExpertRowsShape &shape);
// The gradient of takeRows: dx[t, :] = the sum of token t's rows of dy; arguments dy, places, dx.
CudaKernel takeRowsGradKernel(const ExpertRowsShape &shape);
// out[t, :] = sum over j of weights[t, j] y[places[t, j], :]; arguments y, weights, places, out.
CudaKernel combineRowsKernel(const ExpertRowsShape &shape);
// The gradients of combineRows; arguments dout, y, weights, rows, places, dy, dweights.
CudaKernel combineRowsGradKernel(const ExpertRowsShape &shape);

// Computes y = silu(g) u for the rows below offsets[experts], where x = [g | u] is [tokens, 2
// columns] and y is [tokens, columns]. Arguments x, offsets, y.
CudaKernel expertSwigluKernel(const ExpertRowsShape &shape);
// The gradient of expertSwiglu; arguments dy, x, offsets, dx.
CudaKernel expertSwigluGradKernel(const ExpertRowsShape &shape);

} // namespace lmc::codegen
