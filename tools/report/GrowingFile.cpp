#include "tools/report/GrowingFile.h"

#include "ground/support/File.h"

#include <algorithm>
#include <vector>

namespace lmc {

// A file counts as replaced if the last bytes that were read, up to this many, have changed. Lines
// of metrics differ in these bytes, because they have the time in milliseconds.
static constexpr size_t kTail = 256;

Result<bool> GrowingFile::read(const std::function<void(std::string_view)> &line) {
  part = false;
  if (!exists(path))
    return offset == 0;
  LMC_LET(file, File::openForReading(path));
  if (offset > 0) {
    std::string there(tail.size(), '\0');
    LMC_LET(count, file->readAt(there.data(), there.size(), offset - tail.size()));
    if (*count != tail.size() || there != tail)
      return false;
  }
  std::vector<char> buffer(size_t{1} << 20);
  std::string open; // beginning of a line that continues in the next buffer
  uint64_t at = offset;
  while (true) {
    LMC_LET(count, file->readAt(buffer.data(), buffer.size(), at));
    if (*count == 0)
      break;
    std::string_view text(buffer.data(), *count);
    at += text.size();
    for (size_t newline; (newline = text.find('\n')) != std::string_view::npos;
         text.remove_prefix(newline + 1)) {
      std::string_view whole = text.substr(0, newline);
      if (!open.empty()) {
        open.append(whole.substr(0, kMaxLine - std::min(kMaxLine, open.size())));
        whole = open;
      }
      line(whole.substr(0, kMaxLine));
      open.clear();
      offset = at - (text.size() - newline - 1);
    }
    open.append(text.substr(0, kMaxLine - std::min(kMaxLine, open.size())));
  }
  part = at > offset;
  tail.resize(std::min<uint64_t>(kTail, offset));
  LMC_LET(count, file->readAt(tail.data(), tail.size(), offset - tail.size()));
  tail.resize(*count);
  return true;
}

} // namespace lmc
