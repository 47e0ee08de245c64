#include "compiler/cost/EightBits.h"

#include "ground/plan/Operands.h"

namespace lmc::cost {
namespace {

// A matrix product, d [m, n] = a [m, k] b [k, n], of a linear layer or of its gradients.
struct LinearProduct {
  const plan::Gemm *product;
  bool isBackward, isWeightGradient;
};

// Returns the product that a layer's command computes, if tensor cores could compute it of 8-bit
// floats.
std::optional<LinearProduct> linearOf(const plan::Plan &plan, const plan::Command &command) {
  const plan::Gemm *product = plan::productOf(command);
  if (!product || command.layer() < 0 || product->batch() != 1 ||
      plan.slices()->Get(product->a())->dtype() != plan::DType::BF16)
    return std::nullopt;
  for (uint64_t extent : {product->m(), product->n(), product->k()})
    if (extent % 16 != 0)
      return std::nullopt;
  return LinearProduct{product, command.backward(), product->transpose_a()};
}

// Returns the work of a kernel that reads and writes so many bytes of each of `elements` elements.
KernelWork moving(double elements, double read, double written) {
  return {read * elements, written * elements, 0};
}

} // namespace

std::optional<EightBitsForecast> eightBitsForecast(const plan::Plan &plan, const CostModel &model,
                                                   const PlanCost &cost) {
  if (model.spec.peakFp8 <= 0 || plan.compute_dtype() != plan::DType::BF16)
    return std::nullopt;
  EightBitsForecast forecast;
  bool hasWeights = true; // true until the casts of the weights are counted: once a step
  for (size_t f = 0; f < cost.functions.size(); ++f) {
    const plan::Function &function = *plan.functions()->Get(unsigned(f));
    const auto runs = double(cost.functions[f].runsPerStep);
    bool hasProducts = false;
    for (size_t c = 0; runs > 0 && c < function.commands()->size(); ++c) {
      const plan::Command &command = *function.commands()->Get(unsigned(c));
      if (const plan::Gemm *product = plan::productOf(command); product && product->scale_a() >= 0)
        return std::nullopt;
      const std::optional<LinearProduct> linear = linearOf(plan, command);
      if (!linear)
        continue;
      hasProducts = true;
      Work work = workOf(plan, command);
      auto seconds = [&] {
        double sum = 0;
        for (const Estimate &part : model.kernels(work))
          sum += part.seconds;
        return sum;
      };
      forecast.products += runs * seconds();
      GemmWork *product = std::get_if<GemmWork>(&work);
      if (SwigluWork *both = std::get_if<SwigluWork>(&work))
        product = &both->product;
      product->eightBits = true;
      forecast.eightBits += runs * seconds();
      const double m = double(product->m), n = double(product->n), k = double(product->k);
      auto cast = [&](double times, const KernelWork &moved) {
        forecast.casts += times * estimate(moved, model.spec).seconds;
      };
      if (!linear->isBackward) {
        cast(runs, moving(m * k, 2, 1)); // x
        if (hasWeights)
          cast(1, moving(n * k, 4, 2)); // the weight and its transpose
      } else if (linear->isWeightGradient) {
        // d [out, in] = dy^T x: dy was cast for the other gradient; x is cast again, and
        // transposed.
        cast(runs, moving(n * k, 2, 1));
        cast(runs, moving(n * k, 1, 1));
      } else {
        cast(runs, moving(m * k, 2, 2)); // dy and its transpose
      }
    }
    hasWeights &= !hasProducts;
  }
  if (forecast.products == 0)
    return std::nullopt;
  forecast.stepSeconds = cost.stepSeconds - forecast.products + forecast.eightBits + forecast.casts;
  return forecast;
}

} // namespace lmc::cost
