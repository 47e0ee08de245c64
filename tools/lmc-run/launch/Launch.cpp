#include "tools/lmc-run/launch/Launch.h"

#include "runtime/comm/rendezvous/Socket.h"
#include "tools/lmc-run/end/Supervise.h"
#include "tools/lmc-run/launch/ChildSignals.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lmc {

namespace {

using Clock = std::chrono::steady_clock;

struct Rank {
  pid_t process = -1; // -1: has ended
  int output = -1;    // descriptor from which the rank's output is read; -1: closed
  std::string line;   // without its end
};

class LocalLauncher {
public:
  LocalLauncher(int count, const std::vector<std::string> &command, double secondsToEnd)
      : ranks(static_cast<size_t>(count)), command(command), secondsToEnd(secondsToEnd) {}

  ~LocalLauncher() {
    for (const Rank &rank : ranks)
      if (rank.output >= 0)
        ::close(rank.output);
  }

  Result<int> run() {
    LMC_LET(port, freePort());
    for (size_t i = 0; i < ranks.size(); ++i)
      if (auto started = start(i, *port); !started) {
        signalAll(SIGKILL);
        while (::waitpid(-1, nullptr, 0) > 0) {
        }
        return started.error();
      }
    while (running())
      serve();
    for (size_t i = 0; i < ranks.size(); ++i)
      readOutput(i);
    return cause ? *cause : consequence.value_or(0);
  }

private:
  bool running() const {
    return std::ranges::any_of(ranks, [](const Rank &rank) { return rank.process >= 0; });
  }

  Result<void> start(size_t index, int port) {
    int ends[2] = {-1, -1};
    if (index > 0 && ::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
      return machineError("cannot open a pipe: {}", std::strerror(errno));
    const pid_t parent = ::getpid();
    const pid_t process = ::fork();
    if (process == 0)
      become(index, port, parent, ends[1]);
    if (ends[1] >= 0)
      ::close(ends[1]);
    if (process < 0) {
      if (ends[0] >= 0)
        ::close(ends[0]);
      return machineError("cannot start rank {}: {}", index, std::strerror(errno));
    }
    ranks[index] = {process, ends[0], ""};
    return {};
  }

  // Must be called in the new process: turns it into the rank `index`.
  [[noreturn]] void become(size_t index, int port, pid_t parent, int output) const {
    followParent(parent);
    auto set = [](const char *name, const auto &value, bool replace = true) {
      ::setenv(name, fmt::format("{}", value).c_str(), replace);
    };
    const size_t processors = std::max(1u, std::thread::hardware_concurrency());
    set("RANK", index);
    set("WORLD_SIZE", ranks.size());
    set("LOCAL_RANK", index);
    set("MASTER_ADDR", "127.0.0.1");
    set("LMC_PORT", port);
    set("OMP_NUM_THREADS", std::max<size_t>(1, processors / ranks.size()), false);
    for (const char *name : {"OMPI_COMM_WORLD_RANK", "SLURM_PROCID"})
      ::unsetenv(name);
    if (output >= 0) {
      (void)::fcntl(output, F_SETFL, 0); // blocking
      ::dup2(output, STDOUT_FILENO);
      ::dup2(output, STDERR_FILENO);
    }
    restoreSignals();
    std::vector<char *> arguments;
    for (const std::string &argument : command)
      arguments.push_back(const_cast<char *>(argument.c_str()));
    arguments.push_back(nullptr);
    ::execvp(arguments[0], arguments.data());
    fmt::print(stderr, "cannot start {}: {}\n", command[0], std::strerror(errno));
    ::_exit(1);
  }

  // Handles signals, the ranks' output, ended ranks, and the time limit. Waits at most 0.5 s.
  void serve() {
    std::vector<pollfd> waits = {{signals.descriptor(), POLLIN, 0}};
    for (const Rank &rank : ranks)
      waits.push_back({rank.output, POLLIN, 0}); // poll ignores -1
    int64_t limit = 500; // milliseconds; several ranks that end together may cause only one SIGCHLD
    if (end)
      limit = std::clamp<int64_t>(
          std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now()).count(), 0, limit);
    (void)::poll(waits.data(), waits.size(), static_cast<int>(limit));
    for (size_t i = 0; i < ranks.size(); ++i)
      if (waits[i + 1].revents)
        readOutput(i);
    while (const std::optional<int> signal = signals.next())
      if (*signal != SIGCHLD)
        signalAll(*signal);
    reap();
    if (end && Clock::now() >= *end) {
      signalAll(SIGKILL);
      end.reset();
    }
  }

  // Prints the complete lines of a rank. When its output has ended, prints an incomplete line too.
  void readOutput(size_t index) {
    Rank &rank = ranks[index];
    char buffer[4096];
    while (rank.output >= 0) {
      const ssize_t n = ::read(rank.output, buffer, sizeof(buffer));
      if (n < 0 && errno == EINTR)
        continue;
      if (n < 0 && errno == EAGAIN)
        break;
      if (n <= 0) {
        ::close(std::exchange(rank.output, -1));
        if (!rank.line.empty())
          rank.line += '\n';
      } else {
        rank.line.append(buffer, static_cast<size_t>(n));
      }
    }
    for (size_t length; (length = rank.line.find('\n')) != std::string::npos;) {
      if (length > 0)
        fmt::print(stderr, "rank {}: {}\n", index, std::string_view(rank.line).substr(0, length));
      rank.line.erase(0, length + 1);
    }
  }

  void signalAll(int signal) const {
    for (const Rank &rank : ranks)
      if (rank.process >= 0)
        (void)::kill(rank.process, signal);
  }

  void reap() {
    int status = 0;
    for (pid_t process; (process = ::waitpid(-1, &status, WNOHANG)) > 0;) {
      const auto rank = std::ranges::find(ranks, process, &Rank::process);
      if (rank == ranks.end())
        continue;
      rank->process = -1;
      readOutput(static_cast<size_t>(rank - ranks.begin()));
      const int code =
          WIFEXITED(status) ? WEXITSTATUS(status) : static_cast<int>(ExitCode::RankFailed);
      // Reports no signal after the first failure, as this launcher kills the other ranks at `end`.
      if (WIFSIGNALED(status) && !consequence && !cause)
        fmt::print(stderr, "lmc-run: error: rank {} was ended by signal {} ({}){}\n",
                   rank - ranks.begin(), WTERMSIG(status), ::strsignal(WTERMSIG(status)),
                   WTERMSIG(status) == SIGKILL ? "; is the memory of this machine full?" : "");
      if (code == 0)
        continue;
      if (!cause && !consequence)
        end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double>(secondsToEnd));
      std::optional<int> &place =
          code == static_cast<int>(ExitCode::RankFailed) ? consequence : cause;
      if (!place)
        place = code;
    }
  }

  ChildSignals signals;
  std::vector<Rank> ranks;
  const std::vector<std::string> &command;
  const double secondsToEnd;
  std::optional<Clock::time_point> end;  // time at which ranks that still run are killed
  // Exit codes of the first rank that failed by itself and of the first that failed due to others.
  std::optional<int> cause, consequence;
};

} // namespace

Result<int> launchRanks(int ranks, const std::vector<std::string> &command, double secondsToEnd) {
  return LocalLauncher(ranks, command, secondsToEnd).run();
}

// Returns this program's command line without the options `names` and their values.
static std::vector<std::string> without(const std::vector<std::string_view> &names, int argc,
                                        char **argv) {
  std::vector<std::string> command = {"/proc/self/exe"};
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string_view name = argument.substr(0, argument.find('='));
    if (std::ranges::find(names, name) == names.end())
      command.emplace_back(argument);
    else if (name.size() == argument.size())
      ++i; // skips the option's value
  }
  return command;
}

Result<int> launchHere(int ranks, int argc, char **argv, const LaunchOptions &options) {
  if (options.rank || options.worldSize || options.localRank || options.masterPort ||
      !options.masterAddress.empty() || !options.interface.empty())
    return Error{"--nproc starts all ranks on this machine; leave out --rank, --world-size, "
                 "--local-rank, --master-addr, --master-port and --interface"};
  LMC_LET(launch, findLaunch({}, std::getenv));
  if (launch->size > 1)
    return userError("--nproc starts all ranks, and by its environment this process is rank {} of "
                     "{} already: leave out --nproc",
                     launch->rank, launch->size);
  return launchRanks(ranks, without({"--nproc"}, argc, argv));
}

Result<int> superviseHere(int64_t restarts, int argc, char **argv, const RunOptions &options) {
  LMC_LET(launch, findLaunch(options.launch, std::getenv));
  Supervision supervision;
  std::vector<std::string_view> own = {"--restarts"};
  supervision.command = without(own, argc, argv);
  own.insert(own.end(),
             {"--resume", "--rewind", "--change", "--init", "--trace", "--dump-gradients"});
  supervision.again = without(own, argc, argv);
  supervision.out = options.out;
  supervision.logs =
      launch->rank == 0 ? options.out : fmt::format("{}/ranks/{}", options.out, launch->rank);
  supervision.restarts = restarts;
  supervision.limit = options.timeLimit;
  return supervise(supervision);
}

} // namespace lmc
