#include "tools/lmc-run/monitors/EventCommand.h"

#include "ground/support/File.h"

#include <fmt/format.h>

#include <cerrno>
#include <sys/mman.h>
#include <unistd.h>

namespace lmc {

// The input is a file in memory, because writing to a pipe could block the run.
Result<void> EventCommand::start(const std::string &name, Kind &kind, const Event &event) {
  const int memory = ::memfd_create("event", MFD_CLOEXEC);
  if (memory < 0)
    return systemError("make", "the input of monitoring.on_event", errno);
  const std::string input = event.json + "\n";
  std::optional<Error> failure;
  if (::write(memory, input.data(), input.size()) != static_cast<ssize_t>(input.size()) ||
      ::lseek(memory, 0, SEEK_SET) != 0)
    failure = systemError("write", "the input of monitoring.on_event", errno);
  if (!failure) {
    auto started = Command::start(
        {"/bin/sh", "-c", command},
        {"LMC_EVENT=" + name, fmt::format("LMC_STEP={}", event.step), "LMC_OUT=" + out}, memory,
        out + "/on_event.log");
    if (started)
      kind.running = *started;
    else
      failure = started.error();
  }
  ::close(memory);
  return failure ? Result<void>(*failure) : Result<void>();
}

Result<void> EventCommand::run(const std::string &name, int64_t step, const std::string &json) {
  Kind &kind = kinds[name];
  if (kind.running && !kind.running->ended()) {
    kind.waiting = {step, json};
    return {};
  }
  kind.running.reset();
  kind.waiting.reset(); // drops a waiting event, because it is older than this one
  return start(name, kind, {step, json});
}

Result<void> EventCommand::poll() {
  Result<void> result;
  for (auto &[name, kind] : kinds) {
    if (!kind.running || !kind.running->ended())
      continue;
    kind.running.reset();
    if (const auto next = std::exchange(kind.waiting, std::nullopt))
      if (auto started = start(name, kind, *next); !started)
        result = started;
  }
  return result;
}

} // namespace lmc
