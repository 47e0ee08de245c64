// Predicts the times of the CUDA target's own attention kernels, and of matrix products without
// tensor cores.
#pragma once

#include "compiler/cost/CostModel.h"
#include "compiler/targets/cuda/CudaArch.h"

#include <map>
#include <mutex>

namespace lmc::codegen {

// Prices attention by the cost models of the kernels that the target chooses for a shape
// (AttentionTemplates.h): their clock cycles on the device's architecture, divided by the clock of
// the device spec. If the spec describes no GPU, the base class prices attention.
class CudaCostModel : public cost::CostModel {
public:
  // `arch` is the architecture that the code is generated for. `arch` must outlive the model.
  CudaCostModel(const CudaArch &arch, cost::DeviceSpec spec);

  std::vector<cost::Estimate> attentionKernels(const cost::AttentionWork &work) const override;
  cost::Estimate gemm(const cost::GemmWork &work) const override;
  std::vector<cost::Estimate> swiglu(const cost::SwigluWork &work) const override;
  std::string warning(const cost::Work &work) const override;

private:
  const CudaArch &arch;
  const CudaArch &device; // the architecture of the device that the spec describes
  const cost::DeviceSpec expertSpec; // the spec with the tiles and the rate of the experts' kernels
  mutable std::mutex knownMutex;     // guards `known`, which several threads use
  mutable std::map<cost::AttentionWork, std::vector<cost::Estimate>> known;
};

} // namespace lmc::codegen
