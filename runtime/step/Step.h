// Enqueues the part of an optimizer step that computes its gradients.
#pragma once

#include "runtime/monitor/Guard.h"
#include "runtime/step/Session.h"

#include <functional>

namespace lmc {

// Enqueues the upload of the scalars of step `number` (from 1), and its micro-steps on `batch`
// (this rank's rows), without waiting. Calls `enqueued` after each micro-step.
Result<void> enqueueGradients(Session &session, int64_t number, double lr, const StepLimits &limits,
                              const BatchLoader::Batch &batch,
                              const std::function<Result<void>()> &enqueued);

} // namespace lmc
