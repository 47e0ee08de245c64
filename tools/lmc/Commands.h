// The commands of lmc. Each function adds its command to the command line and returns the function
// that runs it, which prints its own errors and returns the exit code.
#pragma once

#include "tools/support/CommandLine.h"

#include <functional>

namespace lmc {

struct LmcCommand {
  const Command *command;
  std::function<int()> run;
};

LmcCommand addCompileCommand(CommandLine &line);
LmcCommand addExplainCommand(CommandLine &line);
LmcCommand addReportCommand(CommandLine &line);
LmcCommand addConfigCommand(CommandLine &line);

} // namespace lmc
