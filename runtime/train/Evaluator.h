// Validation loss: the mean over the first tokens of the validation data.
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/train/Functions.h"
#include "runtime/train/Scalars.h"

#include <functional>
#include <memory>

namespace lmc {

struct Evaluation {
  double loss = 0;      // nats per token, mean over `tokens`
  uint64_t tokens = 0;  // valid targets
  bool complete = true; // false: given up because of a wish to stop
};

class Evaluator {
public:
  // Evaluates `batches` batches of the plan's global batch size, or what the data
  // has if that is less, each sample once and in file order. So the loss does not
  // depend on the micro-batch size. Samples that do not fill a last micro-batch
  // are padded with ignored ones.
  Evaluator(const PlanFile &plan, Device &device, Functions &functions, Scalars &scalars,
            std::unique_ptr<DataSource> data, uint64_t batches);

  Result<Evaluation> evaluate(const std::function<bool()> &stopRequested);

private:
  const PlanFile &plan;
  Device &device;
  Functions &functions;
  Scalars &scalars;
  std::unique_ptr<DataSource> data;
  uint64_t samples;
};

} // namespace lmc
