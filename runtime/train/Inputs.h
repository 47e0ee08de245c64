// Copies the inputs of one micro-step to device memory.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>

namespace lmc {

// Returns true if the plan has the variable batch.starts, which attention reads for a document
// mask.
bool hasDocumentMask(const PlanFile &plan);

// Copies `tokens`, `targets` and, with a document mask, `starts` ([mbs, seq] int32
// each) into batch.tokens, batch.targets and batch.starts.
Result<void> copyInputs(const PlanFile &plan, Device &device, const int32_t *tokens,
                        const int32_t *targets, const int32_t *starts);

} // namespace lmc
