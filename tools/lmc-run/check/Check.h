// lmc-run --check: finds, before the first step, what can stop a run or make it worthless.
#pragma once

#include "runtime/loop/Run.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// Checks the folder, the disk, the data, the settings, the memory and the links between ranks. If
// no check finds an error, trains the same three steps twice in a scratch folder beside OUT. The
// second time, saves and resumes before the third step. All results must have equal bits. Reports
// how long the job will take, as a table or, with options.json, as JSON. Changes nothing in OUT.
//
// All ranks must call it; `options` are those of `run`. Returns Success, UserError, DoesNotFit or
// Interrupted. Error: a rank was lost.
Result<ExitCode> check(const Run &run, const ProgramOptions &options);

} // namespace lmc
