// Runs optimizer steps of a job without training it: for `lmc-run --bench`, which times them, and
// for --record-commands and --compare-commands.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/monitor/Console.h"
#include "runtime/step/Session.h"
#include "tools/lmc-run/Run.h"
#include "tools/lmc-run/measure/CommandRecord.h"

namespace lmc {

// Runs options.bench steps of a started session after a warm-up of two, then those that --trace
// records, and prints the time of a step beside the plan's prediction. docs/running.md describes
// the result. The batches are those of the job's training data; a job without training data gets
// random tokens. Writes no file but the trace. Returns Interrupted if a signal stopped it.
Result<ExitCode> bench(Session &session, const ProgramOptions &options, const StopSignals &stop,
                       Console &console);

// Runs one step of a started session, and the function `eval` if the plan has it, for `record`,
// which observes the session's functions, and finishes the record. The batches are those of
// bench(). Error: a command differs.
Result<ExitCode> recordCommands(Session &session, CommandRecord &record,
                                const ProgramOptions &options, const StopSignals &stop,
                                Console &console);

} // namespace lmc
