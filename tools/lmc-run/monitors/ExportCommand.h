// Runs the user's command, such as lm-evaluation-harness, for each export of a run.
#pragma once

#include "ground/support/EvaluationResults.h"
#include "tools/lmc-run/monitors/Command.h"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lmc {

// At most one command runs at a time, in the order of the exports' steps. A command continues after
// the end of the training. If a command's exit code is not 0, a later start of the training repeats
// the command. A running command holds a lock on the file OUT/evaluations/STEP/lock.
class ExportCommand {
public:
  // `command` is a text for /bin/sh. Its output goes to OUT/evaluations/STEP/output.log.
  ExportCommand(std::string command, std::string out)
      : command(std::move(command)), out(std::move(out)) {}

  // Adds the exports in OUT/exports that have no complete results.
  Result<void> find();
  void add(int64_t step) { waiting.insert(step); }

  // The result of a command that has ended.
  struct Outcome {
    int64_t step = 0;
    int code = 0;              // its exit code
    EvaluationResults results; // set only if `code` is 0
  };
  // If a command has ended, returns its outcome. If no command runs, starts the next one, with
  // LMC_EXPORT, LMC_STEP, LMC_OUT and LMC_RESULTS in its environment. Must be called regularly.
  Result<std::optional<Outcome>> poll();

  // Returns the steps of the exports whose command runs or waits.
  std::vector<int64_t> open() const;

private:
  Result<bool> start(int64_t step);
  std::string resultsOf(int64_t step) const;

  std::string command, out;
  std::set<int64_t> waiting;
  struct Running {
    int64_t step = 0;
    Command command;
  };
  std::optional<Running> running;
};

} // namespace lmc
