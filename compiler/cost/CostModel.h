// Predicts the time of commands on a device, where possible from the target's knowledge of its own
// kernels.
//
// The base class knows only the device spec. A target that can predict its own kernels derives a
// class, which codegen::Target::costModel returns. Everything that compares plans or reports times
// asks a CostModel, so that a search and its report use the same times.
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
  // which the command launches them. Returns nothing if the target does not model its kernels: the
  // times of the device spec then hold.
  virtual std::vector<Estimate> attentionKernels(const AttentionWork &work) const { return {}; }

  virtual Estimate gemm(const GemmWork &work) const { return estimate(work, spec); }

  // Returns the estimates of a matrix product with SwiGLU: two, of the product and of the kernel
  // that follows it, or one of a kernel that computes all.
  virtual std::vector<Estimate> swiglu(const SwigluWork &work) const {
    return {gemm(work.product), estimate(work.rows, spec)};
  }

  // Returns the estimate of one kernel that computes all of a product with SwiGLU, and whose
  // product reaches `share` of the rate of a library's product.
  Estimate wholeSwiglu(const SwigluWork &work, double share = 1) const;

  // Returns a warning if the work does not run on the device's matrix units although another shape
  // or dtype would: the warning names the cause and a remedy. Returns "" otherwise.
  virtual std::string warning(const Work &work) const { return ""; }

  // Returns one estimate for each kernel of a command if the target knows its kernels, else one
  // estimate for the whole command.
  std::vector<Estimate> kernels(const Work &work) const;

  const DeviceSpec spec;
};

// Returns the estimate of a command from those of its kernels, which run one after the other. The
// longest kernel decides what limits the speed.
Estimate sumOf(const std::vector<Estimate> &kernels);

} // namespace lmc::cost
