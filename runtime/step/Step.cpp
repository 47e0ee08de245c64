#include "runtime/step/Step.h"

#include "ground/plan/Names.h"
#include "runtime/settings/Settings.h"
#include "runtime/step/Inputs.h"

#include <fmt/format.h>

namespace lmc {

static Result<void> uploadScalars(Session &session, int64_t number, double lr,
                                  const StepLimits &limits, uint64_t validTargets) {
  using plan::StepValue;
  Scalars &scalars = *session.scalars;
  const AdamWStep step = adamWStep(session.settings, number, lr);
  scalars.setStepValue(StepValue::LossScale,
                       validTargets == 0 ? 0.0 : 1.0 / static_cast<double>(validTargets));
  const double muonRate = step.lr * session.settings.muonRate;
  scalars.setStepValue(StepValue::LearningRate, step.lr);
  scalars.setStepValue(StepValue::MuonLearningRate, muonRate);
  scalars.setStepValue(StepValue::GroupLearningRate, step.lr);
  scalars.setStepValue(StepValue::GroupMuonLearningRate, muonRate);
  scalars.setStepValue(StepValue::BiasCorrection1, step.correction1);
  scalars.setStepValue(StepValue::BiasCorrection2, step.correction2);
  scalars.setStepValue(StepValue::NormLimit, limits.norm);
  scalars.setStepValue(StepValue::LossLimit, limits.loss);
  return scalars.upload();
}

Result<void> enqueueGradients(Session &session, int64_t number, double lr, const StepLimits &limits,
                              const BatchLoader::Batch &batch,
                              const std::function<Result<void>()> &enqueued) {
  LMC_TRY(uploadScalars(session, number, lr, limits, batch.validTargets));
  const plan::BatchInfo &info = *(*session.plan)->batch();
  const uint64_t accumulation = info.gradient_accumulation_steps();
  const uint64_t elements = info.micro_batch_size() * info.sequence_length();
  for (uint64_t micro = 0; micro < accumulation; ++micro) {
    const uint64_t at = micro * elements;
    LMC_TRY(session.inputs->upload(batch.tokens.data() + at, batch.targets.data() + at,
                                   batch.starts.empty() ? nullptr : batch.starts.data() + at));
    const char *function = micro == 0                  ? names::kMicroFirst
                           : micro + 1 == accumulation ? names::kMicroLast
                                                       : names::kMicro;
    session.device->setPurpose(
        fmt::format("step {}, micro-step {} of {}", number, micro + 1, accumulation));
    session.world.progress().at(
        fmt::format("{}, micro-step {} of {}", function, micro + 1, accumulation));
    LMC_TRY(session.functions->run(function));
    LMC_TRY(enqueued());
  }
  session.device->setPurpose(fmt::format("step {}", number));
  return {};
}

} // namespace lmc
