#include "tools/lmc-run/monitors/ExportCommand.h"

#include "ground/support/File.h"
#include "ground/support/Number.h"

#include <fmt/format.h>

#include <cerrno>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace lmc {

std::string ExportCommand::resultsOf(int64_t step) const {
  return fmt::format("{}/evaluations/{}", out, step);
}

Result<void> ExportCommand::find() {
  const std::string exports = out + "/exports";
  if (!exists(exports))
    return {};
  LMC_LET(names, listFolder(exports));
  for (const std::string &name : *names)
    if (const auto step = parseWhole<int64_t>(name);
        step && !exists(resultsOf(*step) + "/" + kEvaluationComplete))
      add(*step);
  return {};
}

// The command's standard input is the locked file. So the lock ends with the last process that has
// inherited it, which may be one that the command left in the background.
Result<bool> ExportCommand::start(int64_t step) {
  const std::string results = resultsOf(step), lock = results + "/lock";
  LMC_TRY(makeFolders(results));
  const int file = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0)
    return systemError("open", lock, errno);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0) { // the command of an earlier start is still running
    const int failure = errno;
    ::close(file);
    return failure == EWOULDBLOCK ? Result<bool>(false) : systemError("lock", lock, failure);
  }
  auto started =
      Command::start({"/bin/sh", "-c", R"(/bin/sh -c "$1" && : > "$LMC_RESULTS/$2")", "sh", command,
                      kEvaluationComplete},
                     {fmt::format("LMC_EXPORT={}/exports/{}", out, step),
                      fmt::format("LMC_STEP={}", step), "LMC_OUT=" + out, "LMC_RESULTS=" + results},
                     file, results + "/output.log");
  ::close(file);
  LMC_TRY(started);
  running = Running{step, *started};
  return true;
}

Result<std::optional<ExportCommand::Outcome>> ExportCommand::poll() {
  std::optional<Outcome> outcome;
  if (running) {
    const std::optional<int> code = running->command.ended();
    if (!code)
      return outcome;
    outcome = Outcome{.step = running->step, .code = *code, .results = {}};
    running.reset();
    if (*code == 0)
      LMC_SET(outcome->results, readEvaluation(resultsOf(outcome->step)));
    return outcome;
  }
  for (auto step = waiting.begin(); step != waiting.end() && !running;) {
    const std::string results = resultsOf(*step);
    // Skips exports whose results are complete by now, and exports that a rollback has moved away.
    if (exists(results + "/" + kEvaluationComplete) ||
        !exists(fmt::format("{}/exports/{}", out, *step))) {
      step = waiting.erase(step);
      continue;
    }
    auto started = start(*step);
    if (started && !*started)
      break;
    // After an Error, only a later start of the run tries this export again.
    step = waiting.erase(step);
    LMC_TRY(started);
  }
  return outcome;
}

std::vector<int64_t> ExportCommand::open() const {
  std::vector<int64_t> steps(waiting.begin(), waiting.end());
  if (running)
    steps.insert(steps.begin(), running->step);
  return steps;
}

} // namespace lmc
