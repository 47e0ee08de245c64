// Predicts what products of 8-bit floats (training.fp8) would bring for a plan that has none.
#pragma once

#include "compiler/cost/PlanCost.h"

#include <optional>

namespace lmc::cost {

// Seconds of an optimizer step. Those of products and casts are of each alone; stepSeconds is that
// of the whole plan, whose collectives may hide some of them.
struct EightBitsForecast {
  double products = 0;    // of the linear layers' products as they are
  double eightBits = 0;   // of the same products of 8-bit floats
  double casts = 0;       // of the casts, and of the transposes that Hopper's tensor cores need
  double stepSeconds = 0; // with 8-bit floats
};

// Returns the forecast for training.fp8 = "tensor". Each cast and each transpose counts as a kernel
// of its own, which moves its operands' bytes. In a model without experts, ranks gather half the
// bytes of a layer. What else changes, such as fusion, does not count.
// nullopt if the device has no such products, if the plan has them already, or if it does not
// compute in bf16.
std::optional<EightBitsForecast> eightBitsForecast(const plan::Plan &plan, const CostModel &model);

} // namespace lmc::cost
