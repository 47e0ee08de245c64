// Appends lines to a text file of a run, such as metrics.jsonl.
#pragma once

#include "ground/support/Result.h"
#include "runtime/monitor/files/AppendFile.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lmc {

// Lines that cannot be written are kept in memory and written later (AppendFile.h).
class LineFile {
public:
  // Opens or creates the file `path`. The first write completes an incomplete last line.
  static Result<LineFile> open(const std::string &path);

  // Opens or creates a file with one JSON object per step. The run continues after step `lastStep`.
  // Lines of later steps, and an incomplete last line, move to the folder that `undone` returns. If
  // the process is killed meanwhile, no line is lost.
  static Result<LineFile> openAfter(const std::string &path, int64_t lastStep,
                                    const std::function<Result<std::string>()> &undone);

  Result<void> write(std::string_view line);

  // Writes `line` and a newline. Returns a warning if this fails and the previous line was written;
  // else "". In the warning, `what` names the lines, for example "generated texts".
  std::string writeOrWarn(std::string_view line, const char *what);
  // Returns true if the latest writeOrWarn() could not write its line.
  bool isBehind() const { return behind; }

  Result<void> flush() { return file.flush(); }

  void sync() { file.sync(); }

private:
  explicit LineFile(AppendFile file) : file(std::move(file)) {}
  AppendFile file;
  bool behind = false;
};

} // namespace lmc
