#include "tools/lmc-run/monitors/WandbSender.h"

#include "ground/support/File.h"
#include "ground/support/Places.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

namespace lmc {

// Exit codes after which another start would fail too. kCannotWork: lmc-wandb lacks the Python
// package wandb. `env` and `sh` return the other two: a program is not executable, or not found.
static constexpr int kCannotWork = 3, kNotExecutable = 126, kNotFound = 127;

// Returns the path of lmc-wandb: the environment variable LMC_WANDB, or a file beside this program.
static std::string senderPath() {
  if (const char *path = std::getenv("LMC_WANDB"); path && *path)
    return path;
  return programFolder() / "lmc-wandb";
}

WandbSender::~WandbSender() {
  if (alive >= 0)
    ::close(alive);
}

Result<void> WandbSender::start() {
  const std::string path = senderPath();
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return systemError("open", "a pipe", errno);
  if (alive >= 0)
    ::close(alive);
  alive = ends[1];
  std::vector<std::string> arguments = {path, out, "--follow",
                                        "--project=" + settings.wandbProject};
  for (const auto &[option, value] : {std::pair("--entity=", settings.wandbEntity),
                                      {"--group=", settings.wandbGroup},
                                      {"--name=", settings.wandbName}})
    if (!value.empty())
      arguments.push_back(option + value);
  auto started = Command::start(arguments, {}, ends[0], out + "/wandb.log");
  ::close(ends[0]);
  LMC_TRY(started);
  running = *started;
  return {};
}

Result<bool> WandbSender::poll() {
  const auto now = clock();
  if (running) {
    const std::optional<int> code = running->ended();
    if (!code)
      return now >= next;
    running.reset();
    next = now + kMonitorPause;
    isOver = *code == kCannotWork || *code == kNotExecutable || *code == kNotFound;
    return machineError("lmc-wandb has ended with code {} ({}/wandb.log says why)", *code, out);
  }
  if (isOver || now < next)
    return false;
  next = now + kMonitorPause;
  LMC_TRY(start());
  return false;
}

} // namespace lmc
