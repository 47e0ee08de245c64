// Runs some steps of a job for --bench, --record-commands and --compare-commands.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/monitor/Console.h"
#include "runtime/step/Session.h"
#include "tools/lmc-run/Run.h"
#include "tools/lmc-run/measure/CommandRecord.h"

namespace lmc {

// Runs two steps as a warm-up, then options.bench steps, then the steps that --trace records.
// Prints the time of a step beside the plan's prediction (docs/running.md). A job without training
// data gets random tokens. `session` must be started. Returns Interrupted if a signal stopped it.
Result<ExitCode> bench(Session &session, const ProgramOptions &options, const StopSignals &stop,
                       Console &console);

// Runs one step with the batches of bench() and, if the plan has it, the function `eval`. `record`
// records their commands, and finishes its file.
Result<ExitCode> recordCommands(Session &session, CommandRecord &record,
                                const ProgramOptions &options, const StopSignals &stop,
                                Console &console);

} // namespace lmc
