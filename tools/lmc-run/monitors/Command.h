// Starts programs beside a run, which never waits for them to end.
#pragma once

#include "ground/support/Result.h"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace lmc {

// A program that runs in a session of its own, so that no signal of the run's terminal reaches it.
// It continues when this process ends, in whatever way.
class Command {
public:
  // Starts `arguments`, the first of which is searched in PATH. `environment` has texts
  // "NAME=value", which are added to the environment or replace variables in it. The program reads
  // from the descriptor `input`, and appends to the file `output`; if that cannot be opened, its
  // output is lost. Error: it cannot be started.
  static Result<Command> start(const std::vector<std::string> &arguments,
                               const std::vector<std::string> &environment, int input,
                               const std::string &output);

  // Returns the exit code if the program has ended, or 128 + the number of the signal that ended
  // it. Must be called until then, because the system keeps an entry for an ended process.
  std::optional<int> ended();

private:
  explicit Command(pid_t process) : process(process) {}
  pid_t process;
  std::optional<int> code;
};

} // namespace lmc
