#include "compiler/cost/EightBits.h"

#include "ground/plan/Operands.h"
#include "ground/plan/Steps.h"

#include <map>

namespace lmc::cost {
namespace {

class Forecaster {
public:
  Forecaster(const plan::Plan &plan, const CostModel &model) : plan(plan), model(model) {
    for (const plan::Function *function : *plan.functions())
      for (const plan::Command *command : *function->commands()) {
        const plan::Gemm *product = plan::productOf(*command);
        hasEightBits |= product && product->scale_a() >= 0;
        if (const plan::Route *route = command->body_as_Route())
          experts = route->count();
        // The first product of a layer is one of the forward pass.
        if (isLinear(*command) && !rowsOfWeights)
          rowsOfWeights = product->transpose_b();
        gathersWeights |= gathersLayer(*command);
      }
  }

  std::optional<EightBitsForecast> run() {
    if (hasEightBits || !rowsOfWeights)
      return std::nullopt;
    for (const plan::Function *function : *plan.functions()) {
      const uint64_t runs = plan::runsPerStep(function->name()->string_view(),
                                              plan.batch()->gradient_accumulation_steps());
      const bool isFirst = runs > 0 && forecast.products == 0; // it casts the weights of a step
      for (const plan::Command *command : *function->commands())
        if (runs > 0 && isLinear(*command))
          reprice(*command, double(runs), isFirst);
    }
    const Reprice add = [&](const plan::Command &command, Estimate &estimate) {
      if (const auto found = added.find(&command); found != added.end())
        estimate.seconds += found->second;
      else if (experts == 0 && gathersLayer(command))
        estimate.seconds /= 2; // ranks exchange codes
    };
    forecast.stepSeconds = planCost(plan, model, Routing::Balanced, add).stepSeconds;
    return forecast;
  }

private:
  // Returns true for a product of a linear layer, or of its gradients, that training.fp8 would
  // change.
  bool isLinear(const plan::Command &command) const {
    const plan::Gemm *product = plan::productOf(command);
    if (!product || command.layer() < 0 || product->batch() != 1 ||
        plan.slices()->Get(product->a())->dtype() != plan::DType::BF16)
      return false;
    for (uint64_t extent : {product->m(), product->n(), product->k()})
      if (extent % 16 != 0 || extent == experts) // a product of a router
        return false;
    return true;
  }

  // Returns true if ranks gather the weights of a layer for a pass.
  static bool gathersLayer(const plan::Command &command) {
    const plan::Collective *collective = command.body_as_Collective();
    return collective && collective->kind() == plan::CollectiveKind::AllGather &&
           command.layer() >= 0 && collective->axis() != plan::Axis::Expert;
  }

  // Notes how much longer a product and its casts take.
  void reprice(const plan::Command &command, double runs, bool castsWeight) {
    const plan::Gemm &product = *plan::productOf(command);
    const Work work = workOf(plan, command);
    double now = 0, rows = 0; // rows: of the SwiGLU behind a product
    for (const Estimate &part : model.kernels(work))
      now += part.seconds;
    GemmWork product8;
    if (const auto *swiglu = std::get_if<SwigluWork>(&work)) {
      product8 = swiglu->product;
      rows = estimate(swiglu->rows, model.spec).seconds;
    } else {
      product8 = std::get<GemmWork>(work);
    }
    product8.eightBits = true;
    const double then = model.gemm(product8).seconds, casts = castsOf(product, castsWeight);
    added[&command] = then + rows + casts - now;
    forecast.products += runs * (now - rows);
    forecast.eightBits += runs * then;
    forecast.casts += runs * casts;
  }

  // Returns the seconds of the casts and transposes that a product d [m, n] = a [m, k] b [k, n]
  // needs.
  double castsOf(const plan::Gemm &product, bool castsWeight) const {
    const double m = double(product.m()), n = double(product.n()), k = double(product.k());
    auto moving = [&](double elements, double read, double written) {
      return estimate(KernelWork{read * elements, written * elements, 0}, model.spec).seconds;
    };
    // The gradient of a weight: the gradient of the result was cast for the other gradient. The
    // input is cast again, and transposed. It is b, or a if weights are stored as [in, out].
    if (product.transpose_a()) {
      const double x = *rowsOfWeights ? n * k : m * k;
      return moving(x, 2, 1) + moving(x, 1, 1);
    }
    // Forward, or computed again: the input. A weight and its transpose are cast once a step. Each
    // rank of several casts its piece. Codes that were gathered are transposed in each backward
    // pass.
    if (product.transpose_b() == *rowsOfWeights) {
      const double piece = n * k / double(plan.shard_ranks());
      return moving(m * k, 2, 1) + (castsWeight ? moving(piece, 2, 2) : 0);
    }
    // The gradient of the result, and its transpose.
    return moving(m * k, 2, 2) + (gathersWeights ? moving(n * k, 1, 1) : 0);
  }

  const plan::Plan &plan;
  const CostModel &model;
  std::optional<bool> rowsOfWeights; // true: weights are [out, in]
  bool hasEightBits = false, gathersWeights = false;
  uint64_t experts = 0; // 0: none
  std::map<const plan::Command *, double> added;
  EightBitsForecast forecast;
};

} // namespace

std::optional<EightBitsForecast> eightBitsForecast(const plan::Plan &plan, const CostModel &model) {
  if (model.spec.peakFp8 <= 0 || plan.compute_dtype() != plan::DType::BF16)
    return std::nullopt;
  return Forecaster(plan, model).run();
}

} // namespace lmc::cost
