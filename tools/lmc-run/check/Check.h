// lmc-run --check: finds, before the first step, what can stop a run or make it worthless.
#pragma once

#include "runtime/loop/Run.h"
#include "tools/lmc-run/Run.h"

namespace lmc {

// Checks the folder, the disk, the data, the settings, the memory and the links between ranks. If
// none of them has an error, trains three steps from where the run would start, in a scratch folder
// on the file system of OUT: once without an interruption, and again with a save and a resume
// before the third step. The losses, norms and checksums of all state must be equal. Reports how
// long the job will take. Prints a table or, with options.json, an object. Changes nothing in OUT,
// and removes the scratch folder.
//
// All ranks must call it; `options` are those of `run`. Returns Success, UserError, DoesNotFit (if
// only memory or disk are too small) or Interrupted (after a signal). Error: a rank was lost.
Result<ExitCode> check(const Run &run, const ProgramOptions &options);

} // namespace lmc
