#include "runtime/step/Evaluator.h"

#include "ground/plan/Names.h"
#include "runtime/comm/Agree.h"

#include <algorithm>
#include <numbers>

namespace lmc {

Evaluator::Evaluator(const PlanFile &plan, Functions &functions, Inputs &inputs, Scalars &scalars,
                     std::unique_ptr<DataSource> source, uint64_t batches, World &world)
    : plan(plan), functions(functions), inputs(inputs), scalars(scalars), data(std::move(source)),
      bytesOfTokens(data->bytesOfTokens()), samples(data->samplesPerEpoch()), world(world) {
  if (batches > 0)
    samples = std::min(batches * plan->batch()->global_batch_size(), samples);
}

double Evaluator::batches() const {
  return static_cast<double>(samples) / static_cast<double>(plan->batch()->global_batch_size());
}

Result<Evaluation> Evaluator::evaluate(const std::function<bool()> &stopRequested) {
  if (scalars.hasRequests())
    return Error{"a validation cannot start while results of a step are pending",
                 ExitCode::Failure};
  uint64_t rows = plan->batch()->micro_batch_size();
  uint64_t rowTokens = plan->batch()->sequence_length();
  std::vector<int32_t> tokens(rows * rowTokens), targets(rows * rowTokens);
  std::vector<int32_t> starts(data->hasDocumentMask() ? rows * rowTokens : 0);
  LMC_TRY(bytesOfTokens);
  Evaluation evaluation;
  double sum = 0;
  // The sum of the text bytes of this rank's targets, and the number of targets with unknown bytes.
  double bytes = 0, unknown = 0;
  // Waits for the oldest requested loss and adds it.
  auto takeLoss = [&]() -> Result<void> {
    LMC_LET(values, scalars.take());
    LMC_LET(loss, valueOf(*values, names::kEvalLoss));
    sum += *loss;
    return {};
  };
  const uint64_t ranks = static_cast<uint64_t>(world.size());
  for (uint64_t done = 0; done < samples; done += rows * ranks) {
    // Of the next rows, rank 0 reads the first `rows`, rank 1 the following `rows`, and so on.
    const uint64_t first = std::min(done + static_cast<uint64_t>(world.rank()) * rows, samples);
    uint64_t count = std::min(rows, samples - first);
    Result<void> filled =
        data->fill(first * rowTokens, count, tokens.data(), targets.data(), starts.data());
    double requests[] = {stopRequested() ? 1.0 : 0.0, filled ? 0.0 : 1.0};
    LMC_TRY(world.all().allReduce(requests, 2, plan::DType::F64));
    if (requests[0] > 0) {
      evaluation.complete = false;
      break;
    }
    if (requests[1] > 0)
      LMC_TRY(allSucceed(world.all(), filled));
    auto padding = static_cast<std::ptrdiff_t>(count * rowTokens);
    std::fill(tokens.begin() + padding, tokens.end(), 0);
    std::fill(targets.begin() + padding, targets.end(), kIgnoredTarget);
    if (data->hasDocumentMask())
      std::fill(starts.begin() + padding, starts.end(), 0);
    LMC_TRY(inputs.upload(tokens.data(), targets.data(), starts.data()));
    world.progress().at(names::kEval);
    LMC_TRY(functions.run(names::kEval));
    if (!scalars.canRequest())
      LMC_TRY(takeLoss());
    LMC_TRY(scalars.request());
    for (int32_t target : targets) {
      if (target < 0)
        continue;
      ++evaluation.tokens;
      const auto id = static_cast<size_t>(target);
      const uint16_t known = id < bytesOfTokens->size() ? (*bytesOfTokens)[id] : kUnknownBytes;
      (known == kUnknownBytes ? unknown : bytes) += known == kUnknownBytes ? 1 : known;
    }
  }
  while (scalars.hasRequests())
    LMC_TRY(takeLoss());
  if (!evaluation.complete)
    return evaluation;
  double counts[] = {static_cast<double>(evaluation.tokens), bytes, unknown};
  LMC_TRY(world.all().allReduce(counts, 3, plan::DType::F64));
  evaluation.tokens = static_cast<uint64_t>(counts[0]);
  if (evaluation.tokens == 0)
    return Error{"the validation data has no position with a loss"};
  evaluation.loss = sum / static_cast<double>(evaluation.tokens);
  if (counts[2] == 0 && counts[1] > 0)
    evaluation.bitsPerByte = sum / std::numbers::ln2 / counts[1];
  return evaluation;
}

} // namespace lmc
