// Predicts the time of commands on a device.
//
// The base class knows only the device spec. A target that can predict the times of its own kernels
// derives a class (codegen::Target::costModel). The search for a plan and the reports about this
// plan use the same CostModel, so that their times agree.
#pragma once

#include "compiler/cost/Roofline.h"

#include <string>
#include <vector>

namespace lmc::cost {

class CostModel {
public:
  explicit CostModel(DeviceSpec spec) : spec(std::move(spec)) {}
  virtual ~CostModel() = default;

  // Returns the estimates of the kernels of attention or its gradient, in the order of their
  // launches. Returns nothing if the target does not model its kernels.
  virtual std::vector<Estimate> attentionKernels(const AttentionWork &work) const { return {}; }

  virtual Estimate gemm(const GemmWork &work) const { return estimate(work, spec); }

  // Returns the estimates of a matrix product and of the SwiGLU kernel that follows it. If one
  // kernel computes both, returns only one estimate.
  virtual std::vector<Estimate> swiglu(const SwigluWork &work) const {
    return {gemm(work.product), estimate(work.rows, spec)};
  }

  // Returns the estimate of one kernel that computes both the matrix product and the SwiGLU. The
  // product runs at `share` times the rate of a library's product.
  Estimate wholeSwiglu(const SwigluWork &work, double share = 1) const;

  // Returns a warning if the work does not run on the device's matrix units, but would do so if it
  // had another shape or dtype; else "".
  virtual std::string warning(const Work &work) const { return ""; }

  // Returns one estimate for each kernel of a command if the target knows its kernels, else one
  // estimate for the whole command.
  std::vector<Estimate> kernels(const Work &work) const;

  const DeviceSpec spec;
};

} // namespace lmc::cost
