// Writes state of the device to safetensors files, for comparison with other programs.
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/step/Session.h"

#include <string>

namespace lmc {

// Writes the main gradients, as the last micro-step left them, under the names of their parameters.
Result<void> dumpGradients(const std::string &path, const PlanFile &plan, Device &device,
                           World &world);

// Runs the function `logits` on the first micro-batch of `data`. Writes "tokens" (i32 [mbs, seq])
// and "logits" ([mbs, seq, vocab], in the plan's dtype).
Result<void> dumpLogits(const std::string &path, Session &session, const DataSource &data);

} // namespace lmc
