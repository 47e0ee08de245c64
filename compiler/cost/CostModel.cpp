#include "compiler/cost/CostModel.h"

namespace lmc::cost {

std::vector<Estimate> CostModel::kernels(const Work &work) const {
  if (const auto *attention = std::get_if<AttentionWork>(&work))
    if (std::vector<Estimate> own = attentionKernels(*attention); !own.empty())
      return own;
  if (const auto *product = std::get_if<GemmWork>(&work))
    return {gemm(*product)};
  if (const auto *product = std::get_if<SwigluWork>(&work))
    return swiglu(*product);
  return {estimate(work, spec)};
}

Estimate CostModel::wholeSwiglu(const SwigluWork &work, double share) const {
  const Estimate product = gemm(work.product);
  return roofline((product.seconds - spec.launchSeconds) / share, Bound::MatrixUnits,
                  product.flops + work.rows.flops, work.wholeBytes, spec);
}

} // namespace lmc::cost
