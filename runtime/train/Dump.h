// State of the device as safetensors files, for comparison with other programs.
#pragma once

#include "runtime/data/DataSource.h"
#include "runtime/train/Session.h"

#include <string>

namespace lmc {

// The main gradients under their parameters' names, as the micro-steps left them.
Result<void> dumpGradients(const std::string &path, const PlanFile &plan, Device &device);

// Runs `logits` on the first micro-batch of `data` and writes "tokens" (i32
// [mbs, seq]) and "logits" ([mbs, seq, vocab], in the plan's dtype).
Result<void> dumpLogits(const std::string &path, Session &session, const DataSource &data);

} // namespace lmc
