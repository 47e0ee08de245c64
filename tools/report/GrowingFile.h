// Reads the lines of a text file to which another process writes.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lmc {

class GrowingFile {
public:
  // The maximum length of a line; longer lines are cut.
  static constexpr size_t kMaxLine = size_t{1} << 20; // bytes

  explicit GrowingFile(std::string path) : path(std::move(path)) {}

  // Calls `line` for each whole line (without its newline) that was added to the file since the
  // last call. Leaves an incomplete line at the end for a later call. If the file no longer has
  // what was read before, because lines were removed or the file was replaced, calls `restart` and
  // reads from the beginning. Keeps one line in memory, not the file. A missing file has no lines.
  // Error: the file cannot be read.
  Result<void> read(const std::function<void()> &restart,
                    const std::function<void(std::string_view)> &line);

  // Returns true if the file ended in an incomplete line at the last read().
  bool hasPart() const { return part; }

private:
  std::string path;
  uint64_t offset = 0; // bytes of the lines read so far
  std::string tail;    // last bytes of these lines, to recognise a changed file
  bool part = false;
};

} // namespace lmc
