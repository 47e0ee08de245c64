#include "tools/lmc-run/end/Supervise.h"

#include "ground/support/File.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/monitor/RunLog.h"
#include "tools/lmc-run/launch/ChildSignals.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>

#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lmc {

std::string textOf(const ProcessEnd &end) {
  if (end.signal != 0)
    return fmt::format("signal {} ({}{})", end.signal, ::strsignal(end.signal),
                       end.signal == SIGKILL ? "; is the memory of this machine full?" : "");
  const auto code = static_cast<ExitCode>(end.code);
  return fmt::format("exit code {}{}", end.code,
                     code == ExitCode::Failure      ? " (the machine failed)"
                     : code == ExitCode::RankFailed ? " (another rank failed)"
                                                    : "");
}

// Returns true if a restart may succeed: a signal, this machine or another rank ended the run.
static bool mayPass(const ProcessEnd &end) {
  return end.signal != 0 || end.code == static_cast<int>(ExitCode::Failure) ||
         end.code == static_cast<int>(ExitCode::RankFailed);
}

std::optional<RestartPolicy::Restart> RestartPolicy::next(const ProcessEnd &end, uint64_t step) {
  if (step > best)
    vain = 0;
  best = std::max(best, step);
  if (!mayPass(end) || vain >= most)
    return std::nullopt;
  ++vain;
  const double doublings = static_cast<double>(std::min<int64_t>(vain - 1, 30));
  return Restart{vain, std::min(std::exp2(doublings), kLongestWait)};
}

namespace {

// Returns the step in the last whole line of a run's metrics; 0 if there is none.
uint64_t lastMetricsStep(const std::string &out) {
  std::ifstream file(out + "/metrics.jsonl", std::ios::ate);
  if (!file)
    return 0;
  constexpr std::streamoff kTail = 1 << 16;
  file.seekg(std::max<std::streamoff>(0, std::streamoff(file.tellg()) - kTail));
  uint64_t step = 0;
  for (std::string line; std::getline(file, line) && !file.eof();) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_object() && json.contains("step") && json["step"].is_number_unsigned())
      step = json["step"];
  }
  return step;
}

// Returns the newest step that the run has saved or has recorded in its metrics.
uint64_t newestStep(const std::string &out) {
  const auto steps = listCheckpoints(out);
  return std::max(steps && !steps->empty() ? steps->front() : 0, lastMetricsStep(out));
}

// Returns the inode and time of run.json, which change when a start of the run writes the file.
std::pair<ino_t, int64_t> recordOf(const std::string &out) {
  struct stat status {};
  if (::stat((out + "/run.json").c_str(), &status) != 0)
    return {};
  return {status.st_ino,
          int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + int64_t{status.st_mtim.tv_nsec}};
}

bool isThisProgram(pid_t process) {
  struct stat own {
  }, other{};
  return ::stat("/proc/self/exe", &own) == 0 &&
         ::stat(fmt::format("/proc/{}/exe", process).c_str(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

// Returns the children of this process that are ranks of the run. A child with another session or
// another program is no rank.
std::vector<pid_t> ranksLeft() {
  const pid_t self = ::getpid();
  std::ifstream children(fmt::format("/proc/{}/task/{}/children", self, self));
  std::vector<pid_t> ranks;
  for (pid_t child; children >> child;)
    if (::getsid(child) == ::getsid(0) && isThisProgram(child))
      ranks.push_back(child);
  return ranks;
}

class Supervisor {
public:
  explicit Supervisor(const Supervision &s) : s(s), policy(s.restarts, newestStep(s.out)) {}

  Result<int> run() {
    // Ranks whose launcher was killed become children of this process, which waits for their ends.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    // If the console of the run is closed, writes to it fail. The run must go on all the same.
    ignoreFailedWrites();
    const auto before = recordOf(s.out);
    for (int64_t starts = 0;; ++starts) {
      const bool recorded = recordOf(s.out) != before;
      LMC_LET(end, runOnce(recorded ? s.again : s.command, starts));
      // Waits for ranks that may still save, or write to the log files that record() also writes.
      if (mayPass(*end) && !asked)
        awaitRanks();
      const uint64_t step = newestStep(s.out);
      const auto restart = asked ? std::nullopt : policy.next(*end, step);
      if (!restart)
        return leave(*end, step);
      if (s.limit && unixSeconds() + restart->wait >= s.limit->end) {
        report("warning",
               fmt::format("the run has ended by {} at step {}, and no time is left before "
                           "{}: start again to go on",
                           textOf(*end), step, s.limit->source));
        return static_cast<int>(ExitCode::Interrupted);
      }
      const std::string text =
          fmt::format("the run has ended by {} at step {}; it starts again in {:.0f} s (restart "
                      "{} of {} without progress)",
                      textOf(*end), step, restart->wait, restart->number, s.restarts);
      report("warning", text);
      record(*end, step, *restart, starts + 1, text);
      if (!pause(restart->wait)) {
        report("warning",
               fmt::format("stopped by a signal after step {}; start again to go on", step));
        return static_cast<int>(ExitCode::Interrupted);
      }
    }
  }

private:
  static void report(const char *kind, const std::string &text) {
    // fmt::print would throw an exception if the output is closed.
    std::fputs(fmt::format("lmc-run: {}: {}\n", kind, text).c_str(), stderr);
  }

  int leave(const ProcessEnd &end, uint64_t step) const {
    if (mayPass(end) && !asked)
      report("error", fmt::format("the run has ended by {} at step {}, and {} restart(s) in a row "
                                  "made no progress",
                                  textOf(end), step, s.restarts));
    else if (end.signal != 0)
      report("error", fmt::format("the run was ended by {}", textOf(end)));
    return end.signal != 0 ? static_cast<int>(ExitCode::Failure) : end.code;
  }

  void record(const ProcessEnd &end, uint64_t step, const RestartPolicy::Restart &restart,
              int64_t starts, const std::string &text) const {
    if (!exists(s.logs)) // the start of the run failed before it created the folder
      return;
    auto log = RunLog::open(s.logs);
    if (!log)
      return report("warning", log.error().message);
    nlohmann::ordered_json event = {{"number", starts},
                                    {"without_progress", restart.number},
                                    {"step", step},
                                    {"wait_seconds", restart.wait}};
    end.signal != 0 ? event["signal"] = end.signal : event["code"] = end.code;
    log->line("warning: " + text);
    log->event("restart", event);
  }

  Result<ProcessEnd> runOnce(const std::vector<std::string> &command, int64_t starts) {
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process < 0)
      return machineError("cannot start the run: {}", std::strerror(errno));
    if (process == 0) {
      followParent(parent);
      if (starts > 0)
        ::setenv(kRestartVariable, fmt::format("{}", starts).c_str(), 1);
      s.limit ? ::setenv(kTimeLimitVariable, textOf(*s.limit).c_str(), 1)
              : ::unsetenv(kTimeLimitVariable);
      restoreSignals();
      std::vector<char *> arguments;
      for (const std::string &argument : command)
        arguments.push_back(const_cast<char *>(argument.c_str()));
      arguments.push_back(nullptr);
      ::execvp(arguments[0], arguments.data());
      report("error", fmt::format("cannot start {}: {}", command[0], std::strerror(errno)));
      ::_exit(static_cast<int>(ExitCode::UserError));
    }
    for (;;) {
      wait(0.5);
      while (const std::optional<int> signal = signals.next())
        if (*signal != SIGCHLD) {
          asked = true;
          (void)::kill(process, *signal);
        }
      if (const auto end = reap(process))
        return *end;
    }
  }

  // Collects all children that have ended. Returns how `process` has ended if it is one of them.
  static std::optional<ProcessEnd> reap(pid_t process = -1) {
    std::optional<ProcessEnd> end;
    int status = 0;
    for (pid_t ended; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
      if (ended == process)
        end = WIFSIGNALED(status) ? ProcessEnd{0, WTERMSIG(status)}
                                  : ProcessEnd{WEXITSTATUS(status), 0};
    return end;
  }

  // Waits until all ranks have ended or a stop signal comes: a rank may still save after the end of
  // its launcher. Kills ranks that take longer than a minute.
  void awaitRanks() {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    for (std::vector<pid_t> left = ranksLeft(); !left.empty() && !asked; left = ranksLeft()) {
      if (std::chrono::steady_clock::now() >= patience)
        for (const pid_t rank : left)
          (void)::kill(rank, SIGKILL);
      wait(0.1);
      drainSignals();
      (void)reap();
    }
  }

  void drainSignals() {
    while (const std::optional<int> signal = signals.next())
      asked = asked || *signal != SIGCHLD;
  }

  // Returns after `seconds`, or as soon as a signal arrives.
  void wait(double seconds) {
    pollfd waits = {signals.descriptor(), POLLIN, 0};
    (void)::poll(&waits, 1, static_cast<int>(seconds * 1000));
  }

  // Waits for `seconds`. Returns false if a stop signal arrived.
  bool pause(double seconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    for (;;) {
      drainSignals();
      (void)reap();
      const double left =
          std::chrono::duration<double>(end - std::chrono::steady_clock::now()).count();
      if (asked || left <= 0)
        return !asked;
      wait(left);
    }
  }

  const Supervision &s;
  ChildSignals signals;
  RestartPolicy policy;
  bool asked = false; // a signal has asked the run to stop
};

} // namespace

Result<int> supervise(const Supervision &supervision) { return Supervisor(supervision).run(); }

} // namespace lmc
