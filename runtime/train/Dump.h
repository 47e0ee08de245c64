// State of the device as safetensors files, for comparison with other programs.
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/train/Session.h"

#include <string>

namespace lmc {

// Writes the main gradients under the names of their parameters, as the micro-steps left them.
Result<void> dumpGradients(const std::string &path, const PlanFile &plan, Device &device);

// Runs the function `logits` on the first micro-batch of `data`. Writes "tokens" (i32 [mbs, seq])
// and "logits" ([mbs, seq, vocab], in the plan's dtype).
Result<void> dumpLogits(const std::string &path, Session &session, const DataSource &data);

} // namespace lmc
