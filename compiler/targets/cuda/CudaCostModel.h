// Predicts the times of attention, of matrix products and of products with SwiGLU on a GPU.
#pragma once

#include "compiler/cost/CostModel.h"
#include "compiler/targets/cuda/CudaArch.h"

#include <map>
#include <mutex>

namespace lmc::codegen {

// Predicts attention's time: its clock cycles (AttentionTemplates.h) divided by the clock rate of
// the device spec. If the spec describes no GPU, the base class predicts the time.
class CudaCostModel : public cost::CostModel {
public:
  // Code is generated for `arch`, which must outlive the model.
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
