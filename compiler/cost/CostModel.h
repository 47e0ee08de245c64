// Predicts the time of commands on a device, with what the job's target knows of its own kernels.
//
// The base class knows only the device spec. A target whose kernels have a cost model of their own
// derives a class from it, which codegen::Target::costModel returns. Everything that compares plans
// or reports times asks a CostModel, so that a search and its report use the same prices.
//
// Stable interface: CostModel.
#pragma once

#include "compiler/cost/Roofline.h"

#include <string>
#include <vector>

namespace lmc::cost {

class CostModel {
public:
  explicit CostModel(DeviceSpec spec) : spec(std::move(spec)) {}
  virtual ~CostModel() = default;

  // Returns the estimates of the kernels that compute attention or its gradient, in the order in
  // which the command launches them. Returns nothing if the target has no cost model of its
  // kernels: the times of the device spec then hold.
  virtual std::vector<Estimate> attentionKernels(const AttentionWork &work) const { return {}; }

  // Returns the estimate of a matrix product.
  virtual Estimate gemm(const GemmWork &work) const { return estimate(work, spec); }

  // Returns the estimates of a matrix product with SwiGLU: of the product and of the kernel that
  // follows it, or of one kernel that computes all.
  virtual std::vector<Estimate> swiglu(const SwigluWork &work) const {
    return {gemm(work.product), estimate(work.rows, spec)};
  }

  // Returns the estimate of one kernel that computes all of a product with SwiGLU, at `share` of
  // the rate of a library's product.
  Estimate wholeSwiglu(const SwigluWork &work, double share = 1) const;

  // Returns a warning if the work does not run on the device's matrix units, although it could in
  // another shape or dtype: the warning names the cause and a remedy. Returns "" otherwise.
  virtual std::string warning(const Work &work) const { return ""; }

  // Returns the estimates of the kernels of a command: one for each, where the target knows them;
  // else one for the whole command.
  std::vector<Estimate> kernels(const Work &work) const;

  const DeviceSpec spec;
};

// Returns the estimate of a command, given those of its kernels, which run one after the other. The
// longest kernel says what limits the speed.
Estimate sumOf(const std::vector<Estimate> &kernels);

} // namespace lmc::cost
