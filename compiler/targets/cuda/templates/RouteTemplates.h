// Generates the kernels of the router of a mixture of experts, from route.cuh.
#pragma once

#include "compiler/targets/cuda/CudaKernel.h"
#include "compiler/targets/cuda/CudaTypes.h"

#include <vector>

namespace lmc::codegen {

// The shape of a router: logits [tokens, experts] of `type`; experts i32 and weights [tokens,
// chosen], counts and mass [experts] in realType(). At most 32 choices and 1023 experts.
struct RouteShape {
  int64_t tokens = 0, experts = 0, chosen = 0;
  DataType type = DataType::BF16;
  bool normalize = false;
  bool mass = false;                  // for the gradient: true if the mass also has a gradient
  bool sigmoid = false, bias = false; // p is a sigmoid; a bias is added to p to choose experts
  double scale = 1;                   // factor of the weights

  DataType realType() const { return type == DataType::F64 ? DataType::F64 : DataType::F32; }
  // The bytes of the workspace, which holds the sums of thread blocks.
  int64_t workspaceBytes() const;
};

// Returns the kernels in the order to run. Arguments of the first: logits, bias (only with
// shape.bias), weights, experts, workspace; of the second: workspace, counts, mass.
std::vector<CudaKernel> routeKernels(const RouteShape &shape);

// The gradient's kernel; arguments logits, experts, dweights, dmass (with shape.mass), dlogits.
CudaKernel routeGradKernel(const RouteShape &shape);

} // namespace lmc::codegen
