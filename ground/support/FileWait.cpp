#include "ground/support/FileWait.h"

#include <fmt/format.h>

#include <mutex>

namespace lmc {

// All FileWaits of the process form one list. This mutex guards the list.
static std::mutex waitsMutex;
static FileWait *oldest = nullptr, *newest = nullptr;

FileWait::FileWait(const char *action, const std::string &path)
    : action(action), path(path), began(std::chrono::steady_clock::now()), next(nullptr) {
  std::lock_guard lock(waitsMutex);
  previous = newest;
  (previous ? previous->next : oldest) = this;
  newest = this;
}

FileWait::~FileWait() {
  std::lock_guard lock(waitsMutex);
  (previous ? previous->next : oldest) = next;
  (next ? next->previous : newest) = previous;
}

std::optional<std::string> longestFileWait(double leastSeconds) {
  std::lock_guard lock(waitsMutex);
  if (!oldest)
    return std::nullopt;
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - oldest->began).count();
  if (seconds < leastSeconds)
    return std::nullopt;
  return fmt::format("{} {} for {:.0f} s", oldest->action, oldest->path, seconds);
}

} // namespace lmc
