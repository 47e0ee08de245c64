#include "runtime/watch/LoneWatch.h"

#include "ground/support/Result.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <thread>

#include <unistd.h>

namespace lmc {

static void record(const Hang &hang, const std::string &text, RunLog &log) {
  log.line(text);
  log.event("hang", {{"kind", hang.kind == Hang::Kind::Hangs    ? "hangs"
                              : hang.kind == Hang::Kind::GoesOn ? "goes_on"
                                                                : "ends"},
                     {"seconds", hang.seconds},
                     {"activity", textOf(hang.state.activity)},
                     {"step", hang.state.step},
                     {"text", describe(hang.state)}});
}

// Prints a line. fmt::print would throw if it cannot write, and the exception would end the run.
static void report(const std::string &line, FILE *errors) {
  std::fputs((line + "\n").c_str(), errors);
}

std::unique_ptr<HangWatch> watchLoneRank(Progress &progress, const StallLimits &limits, RunLog &log,
                                         FILE *errors) {
  return std::make_unique<HangWatch>(progress, limits, [&log, errors](const Hang &hang) {
    if (hang.kind != Hang::Kind::Ends) {
      const std::string text = hang.kind == Hang::Kind::Hangs
                                   ? "warning: " + hang.text() + "; the run waits"
                                   : fmt::format("warning: the run goes on, after {}", hang.text());
      report(text, errors);
      // Waits at most 1 s, because a run that hangs while it writes to its logs keeps this lock.
      if (const RunLog::Lock lock = log.lockWithin(std::chrono::seconds(1)))
        record(hang, text, log);
      return;
    }
    const std::string text = fmt::format("error: {}; start again to go on", hang.text());
    report("lmc-run: " + text, errors);
    // Another thread writes to the logs. If their disk hangs, only that thread waits.
    std::thread([&log, hang, text] {
      record(hang, text, log);
      log.event("exit", {{"code", static_cast<int>(ExitCode::Failure)},
                         {"reason", "hang"},
                         {"error", hang.text()}});
    }).detach();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    ::_exit(static_cast<int>(ExitCode::Failure));
  });
}

} // namespace lmc
