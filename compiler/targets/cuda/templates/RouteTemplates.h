// Generates the kernels of the router of a mixture of experts, from route.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// The shape of a router: logits [tokens, experts] of `type`; experts i32 and weights [tokens,
// chosen], counts and mass (sums of p) [experts] in realType(). At most 32 choices (a
// lane keeps the weight of one) and 1023 experts (a lane has one bit for each of its experts).
struct RouteShape {
  int64_t tokens = 0, experts = 0, chosen = 0;
  DataType type = DataType::BF16;
  bool normalize = false;
  bool mass = false;                  // for the gradient: true if the mass also has a gradient
  bool sigmoid = false, bias = false; // p is a sigmoid; a bias is added to p to choose experts
  double scale = 1;                   // factor of the weights

  DataType realType() const { return type == DataType::F64 ? DataType::F64 : DataType::F32; }
  // Returns the size in bytes of the workspace, which holds the sums of each thread block.
  int64_t workspaceBytes() const;
};

// Returns the two kernels in launch order. Arguments of the first: logits, bias (if shape.bias),
// weights, experts, workspace. Arguments of the second: workspace, counts, mass.
std::vector<CudaKernel> routeKernels(const RouteShape &shape);

// Returns the gradient's kernel; arguments logits, experts, dweights, dmass (if any), dlogits.
CudaKernel routeGradKernel(const RouteShape &shape);

} // namespace lmc::codegen
