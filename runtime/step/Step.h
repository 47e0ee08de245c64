// The work of an optimizer step on a device, up to its gradients.
#pragma once

#include "runtime/monitor/Guard.h"
#include "runtime/step/Session.h"

#include <functional>

namespace lmc {

// Enqueues the scalars of step `number` (from 1) with learning rate `lr` and `limits`, and its
// micro-steps on `batch` (GBS rows). Calls `enqueued` after each micro-step. Does not wait for the
// device. Leaves the step as the purpose of what is enqueued next (Device::setPurpose).
Result<void> enqueueGradients(Session &session, int64_t number, double lr, const StepLimits &limits,
                              const BatchLoader::Batch &batch,
                              const std::function<Result<void>()> &enqueued);

} // namespace lmc
