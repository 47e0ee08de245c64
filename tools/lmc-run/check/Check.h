// lmc-run --check: finds, before the first step, what can stop a run or make it worthless.
#pragma once

#include "runtime/loop/Run.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// Checks the folder, the disk, the data, the settings, the memory and the links between ranks.
// Without errors, trains the same three steps twice in a scratch folder beside OUT. The second
// training saves and resumes before the third step. All results must have equal bits. Reports how
// long the job will take: a table, or JSON if options.json is set. Changes nothing in OUT.
//
// All ranks must call it; `options` are the options of `run`. Returns Success, UserError,
// DoesNotFit or Interrupted. Error: a rank was lost.
Result<ExitCode> check(const Run &run, const ProgramOptions &options);

} // namespace lmc
