// The commands of lmc-data. argv[0] is the command's name; what a command reports
// goes to stdout, an Error to main().
#pragma once

#include "runtime/support/Result.h"

namespace lmc {

Result<void> packCommand(int argc, char **argv);
Result<void> inspectCommand(int argc, char **argv);
Result<void> verifyCommand(int argc, char **argv);

} // namespace lmc
