// Reads the lines of a text file that another process writes to.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace lmc {

class GrowingFile {
public:
  // A longer line is passed on cut to this length.
  static constexpr size_t kMaxLine = size_t{1} << 20; // bytes

  explicit GrowingFile(std::string path) : path(std::move(path)) {}

  // Calls `line` for each whole line (without its newline) that the file has got since the last
  // call. A part of a line at the end is left for a later call. If what was read before is not in
  // the file any more, because lines were taken back or the file was replaced, it calls `restart`
  // and reads from the beginning. Takes memory for a line, not for the file. A file that is missing
  // has no lines; other failures to read are an Error.
  Result<void> read(const std::function<void()> &restart,
                    const std::function<void(std::string_view)> &line);

  // Returns true if the file ended in a part of a line when it was last read.
  bool hasPart() const { return part; }

private:
  std::string path;
  uint64_t offset = 0; // bytes of the lines that were read
  std::string tail;    // the last bytes of these, by which a changed file is recognised
  bool part = false;
};

} // namespace lmc
