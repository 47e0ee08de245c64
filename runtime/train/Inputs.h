// One micro-batch into device memory.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>

namespace lmc {

// Copies `tokens` and `targets` ([mbs, seq] int32 each) into batch.tokens and
// batch.targets.
Result<void> copyInputs(const PlanFile &plan, Device &device, const int32_t *tokens,
                        const int32_t *targets);

} // namespace lmc
