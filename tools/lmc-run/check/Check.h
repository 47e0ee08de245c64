// lmc-run --check: finds, before the first step, what can stop a run or make it worthless.
#pragma once

#include "runtime/loop/Run.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// Checks the folder, the disk, the data, the settings, the memory and the links between ranks. If
// none of them has an error, trains three steps in a scratch folder beside OUT: once without an
// interruption, and again with a save and a resume before the third step. All results must have
// equal bits. Reports how long the job will take, as a table or, with options.json, as JSON.
// Changes nothing in OUT.
//
// All ranks must call it; `options` are those of `run`. Returns Success, UserError, DoesNotFit or
// Interrupted. Error: a rank was lost.
Result<ExitCode> check(const Run &run, const ProgramOptions &options);

} // namespace lmc
