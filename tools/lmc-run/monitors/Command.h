// Starts programs beside a run. The run never waits for their ends.
#pragma once

#include "ground/support/Result.h"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace lmc {

// A program in a session of its own, which no signal of the run's terminal reaches. It outlives
// this process.
class Command {
public:
  // Starts the program arguments[0], which is searched in PATH, with `arguments`. The texts
  // "NAME=value" in `environment` add or replace environment variables. The program reads from the
  // descriptor `input`, and appends to the file `output`, if that can be opened.
  static Result<Command> start(const std::vector<std::string> &arguments,
                               const std::vector<std::string> &environment, int input,
                               const std::string &output);

  // If the program has ended, returns its exit code, or 128 + the number of the signal that ended
  // it. Must be called until it returns a number.
  std::optional<int> ended();

private:
  explicit Command(pid_t process) : process(process) {}
  pid_t process;
  std::optional<int> code;
};

} // namespace lmc
