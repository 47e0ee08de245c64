// A file of text, decompressed while it is read if it is gzip or zstd.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/Progress.h"

#include <memory>
#include <string>
#include <string_view>

namespace lmc {

// The path that means standard input.
inline constexpr std::string_view kStandardInput = "-";
// Returns what errors call a path: "standard input", or the path itself.
std::string nameOfInput(const std::string &path);

class TextInput {
public:
  // Opens the file and reads its beginning. Error: the file cannot be opened, or its contents are a
  // known format that is no text (Parquet, ZIP, another compression, a token file, UTF-16 ...).
  // Advances `progress` by the bytes of the file, not of the text, as they are read.
  static Result<std::unique_ptr<TextInput>> open(const std::string &path, Progress &progress);
  ~TextInput();

  // Returns the next piece of the text, which is valid until the next call; "" at the end. Error:
  // the file cannot be read on or decompressed; the error names the byte of the file.
  Result<std::string_view> read();
  // Passes over the first bytes of the text; call it before read(). The text must have as many.
  Result<void> skip(uint64_t bytes);

private:
  TextInput();
  struct State;
  std::unique_ptr<State> state;
};

// Checks that text is UTF-8, piece by piece. A character may begin in one piece and end in the
// next.
class Utf8Checker {
public:
  // `position`: where in the text it begins to check, between two characters.
  explicit Utf8Checker(uint64_t position = 0) : position(position) {}

  // Returns the position in the whole text, from 0 on, of the first byte that no UTF-8 text has
  // there; -1 if there is none up to the end of `piece`.
  int64_t check(std::string_view piece);
  // Returns true if the text may end here: no character is incomplete.
  bool complete() const { return missing == 0; }

private:
  uint64_t position;
  int missing = 0;                    // bytes of the current character that have not come yet
  uint8_t lowest = 0x80, most = 0xbf; // bounds of the next byte of the current character
};

} // namespace lmc
