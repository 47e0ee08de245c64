// Appends lines to a text file of a run, such as metrics.jsonl.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lmc {

// If the disk is full, no part of a line remains in the file: a line that could not be written is
// kept in memory and written before the next one. Such lines are lost only if the program ends before
// the disk has room again.
class LineFile {
public:
  // Returns true for the first line that does not belong to the file any more.
  using Ends = std::function<bool(const std::string &line)>;

  // Opens `path`, or creates it, to append to it. If the last line has no newline, one is added
  // before the next line is written.
  static Result<LineFile> open(const std::string &path);

  // As open(), but first moves the lines from the first one for which `ends` is true, and a part of
  // a line at the end of the file, to the file that `undone` returns. Nothing is moved if there are
  // no such lines. At every moment each line is in at least one of the two files on the disk.
  static Result<LineFile> openAndMove(const std::string &path, const Ends &ends,
                                      const std::function<Result<std::string>()> &undone);

  LineFile(LineFile &&other) noexcept;
  LineFile &operator=(LineFile &&) = delete;
  ~LineFile();

  // Writes the lines that were kept, and then `line`, to which a newline is added. After an Error
  // they are kept for the next call.
  Result<void> write(std::string_view line);

  // Returns when all written lines are on the disk, as far as the system can tell.
  void sync();

private:
  LineFile(int fd, std::string path, uint64_t end) : fd(fd), path(std::move(path)), end(end) {}
  int fd = -1;
  std::string path;
  uint64_t end = 0;    // bytes of whole lines in the file
  std::string pending; // whole lines that are not in the file yet
};

} // namespace lmc
