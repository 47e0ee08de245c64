// Measures the validation loss: the mean loss over the first samples of the validation data.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/data/DataSource.h"
#include "runtime/step/Functions.h"
#include "runtime/step/Inputs.h"
#include "runtime/step/Scalars.h"

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace lmc {

struct Evaluation {
  double loss = 0;     // nats per token, the mean over the targets with a loss
  uint64_t tokens = 0; // number of targets with a loss
  // The sum of the losses in bits / the number of text bytes of the targets; absent if unknown.
  std::optional<double> bitsPerByte;
  bool complete = true; // false: a signal stopped the evaluation
};

class Evaluator {
public:
  // Evaluates the first `batches` x GBS sequences of the data, or all if there are fewer or
  // `batches` is 0. The loss depends neither on MBS nor on the number of ranks.
  Evaluator(const PlanFile &plan, Functions &functions, Inputs &inputs, Scalars &scalars,
            std::unique_ptr<DataSource> data, uint64_t batches, World &world);

  // All ranks call it together. The evaluation stops if `stopRequested` is true on one of them.
  Result<Evaluation> evaluate(const std::function<bool()> &stopRequested);

  // Returns the number of batches of GBS sequences in an evaluation. It may be a fraction.
  double batches() const;

private:
  const PlanFile &plan;
  Functions &functions;
  Inputs &inputs;
  Scalars &scalars;
  std::unique_ptr<DataSource> data;
  // The number of text bytes of each id, or kUnknownBytes; empty: the data does not have them.
  Result<std::vector<uint16_t>> bytesOfTokens;
  uint64_t samples;
  World &world;
};

} // namespace lmc
