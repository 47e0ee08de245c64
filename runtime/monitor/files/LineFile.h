// Appends lines to a text file of a run, such as metrics.jsonl.
#pragma once

#include "ground/support/Result.h"
#include "runtime/monitor/files/AppendFile.h"

#include <functional>
#include <string>
#include <string_view>
#include <utility>

namespace lmc {

// A line that cannot be written is kept, as AppendFile keeps a record.
class LineFile {
public:
  // Returns true for the first line that no longer belongs to the file.
  using Ends = std::function<bool(const std::string &line)>;

  // Opens `path`, or creates it, to append to it. If the last line has no newline, one is added
  // before the next line is written.
  static Result<LineFile> open(const std::string &path);

  // Like open(), but first moves the lines from the first one for which `ends` is true, and a part
  // of a line at the end of the file, to the file that `undone` returns. Nothing is moved if there
  // are no such lines. At every moment each line is in at least one of the two files on the disk.
  static Result<LineFile> openAndMove(const std::string &path, const Ends &ends,
                                      const std::function<Result<std::string>()> &undone);

  // Writes the lines that an earlier call could not write, and then `line` with a newline. After an
  // Error all of them are kept for the next call.
  Result<void> write(std::string_view line);

  // Writes the lines that an earlier call could not write. After an Error they are kept.
  Result<void> flush() { return file.flush(); }

  // Returns when all written lines are on the disk, as far as the system can tell.
  void sync() { file.sync(); }

private:
  explicit LineFile(AppendFile file) : file(std::move(file)) {}
  AppendFile file;
};

} // namespace lmc
