// Runs some optimizer steps of a job for `lmc-run --bench`, which measures their time, and for
// --record-commands and --compare-commands.
#pragma once

#include "ground/support/Signals.h"
#include "runtime/monitor/Console.h"
#include "runtime/step/Session.h"
#include "tools/lmc-run/Run.h"
#include "tools/lmc-run/measure/CommandRecord.h"

namespace lmc {

// Runs two steps of a started session as a warm-up, then options.bench steps, then the steps that
// --trace records. Prints the time of a step beside the plan's prediction (docs/running.md
// describes the result). The batches come from the job's training data; a job without training data
// gets random tokens. Writes no file but the trace. Returns Interrupted if a signal stopped it.
Result<ExitCode> bench(Session &session, const ProgramOptions &options, const StopSignals &stop,
                       Console &console);

// Runs one step of a started session, whose functions `record` observes, and the function `eval` if
// the plan has it. Then finishes the record. The batches are those of bench(). Error: a command
// differs from the recorded one.
Result<ExitCode> recordCommands(Session &session, CommandRecord &record,
                                const ProgramOptions &options, const StopSignals &stop,
                                Console &console);

} // namespace lmc
