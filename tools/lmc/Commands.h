// The commands of lmc. Each function adds a command to the command line.
#pragma once

#include "tools/support/CommandLine.h"

#include <functional>

namespace lmc {

struct LmcCommand {
  const Command *command;
  std::function<int()> run; // prints errors, and returns the exit code
};

LmcCommand addCompileCommand(CommandLine &line);
LmcCommand addExplainCommand(CommandLine &line);
LmcCommand addReportCommand(CommandLine &line);
LmcCommand addConfigCommand(CommandLine &line);

} // namespace lmc
