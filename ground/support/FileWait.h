// Records which file each thread of this process is reading or writing, so that a watchdog can name
// a file that does not answer.
#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace lmc {

// An object of this class exists while a thread reads or writes a file.
class FileWait {
public:
  // `action` is "reading" or "writing". `action` and `path` must outlive this object.
  FileWait(const char *action, const std::string &path);
  ~FileWait();
  FileWait(const FileWait &) = delete;
  FileWait &operator=(const FileWait &) = delete;

private:
  friend std::optional<std::string> longestFileWait(double leastSeconds);
  const char *action;
  const std::string &path;
  std::chrono::steady_clock::time_point began;
  FileWait *previous, *next; // neighbours in the list of all FileWaits; the oldest is first
};

// Returns "reading PATH for 31 s" for the unfinished file operation that began first. Returns
// nullopt if no operation began at least `leastSeconds` ago.
std::optional<std::string> longestFileWait(double leastSeconds);

} // namespace lmc
