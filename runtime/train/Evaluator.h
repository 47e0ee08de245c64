// Validation loss: the mean over the first tokens of the validation data.
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/train/Functions.h"
#include "runtime/train/Scalars.h"

#include <functional>
#include <memory>

namespace lmc {

struct Evaluation {
  double loss = 0;      // nats per token, mean over the valid targets
  uint64_t tokens = 0;  // the number of valid targets
  bool complete = true; // false: stopped by a signal
};

class Evaluator {
public:
  // Evaluates `batches` batches of the plan's global batch size, or all data if that is less. Every
  // sample is used once, in file order, so the loss does not depend on the micro-batch size. An
  // incomplete last micro-batch is padded with ignored samples.
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
