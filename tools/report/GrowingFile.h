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
  static constexpr size_t kMaxLine = size_t{1} << 20; // bytes; longer lines are cut

  explicit GrowingFile(std::string path) : path(std::move(path)) {}

  // Calls `line` for each whole line (without its newline) that was added since the last call. An
  // incomplete last line waits for a later call. A missing file has no lines. Returns false if
  // bytes that were read before have changed: a new GrowingFile is needed. Error: the file cannot
  // be read.
  Result<bool> read(const std::function<void(std::string_view)> &line);

  // Returns true if the last read() found an incomplete last line.
  bool hasPart() const { return part; }

private:
  std::string path;
  uint64_t offset = 0; // bytes of the lines read so far
  std::string tail;    // last bytes of these lines, to recognise a changed file
  bool part = false;
};

} // namespace lmc
