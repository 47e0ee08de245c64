// Reads a file of text, and decompresses it if it is gzip or zstd.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/Progress.h"

#include <memory>
#include <string>
#include <string_view>

namespace lmc {

inline constexpr std::string_view kStandardInput = "-";
// Returns the name of a path for errors: "standard input", or the path itself.
std::string nameOfInput(const std::string &path);

class TextInput {
public:
  // Opens the file and reads its beginning. Each read advances `progress` by bytes of the file, not
  // of the text. Error: the file cannot be opened, or has a known format that is no text (ZIP,
  // PDF).
  static Result<std::unique_ptr<TextInput>> open(const std::string &path, Progress &progress);
  ~TextInput();

  // Returns the next piece of the text, which is valid until the next call; "" at the end. An Error
  // names the offset in the file, in bytes.
  Result<std::string_view> read();
  // Skips the first `bytes` bytes of the text, which must have that many. Call it before read().
  Result<void> skip(uint64_t bytes);

private:
  TextInput();
  struct State;
  std::unique_ptr<State> state;
};

// Checks that text is UTF-8, piece by piece. A piece may end inside a character.
class Utf8Checker {
public:
  // `position` is the offset in bytes, between two characters, at which the first piece begins.
  explicit Utf8Checker(uint64_t position = 0) : position(position) {}

  // Returns the offset in bytes of the first byte that makes the text invalid; -1: there is none.
  int64_t check(std::string_view piece);
  // Returns true if no character is incomplete: the text may end here.
  bool complete() const { return missing == 0; }

private:
  uint64_t position;
  int missing = 0;                    // number of bytes that the current character still needs
  uint8_t lowest = 0x80, most = 0xbf; // bounds of the current character's next byte
};

} // namespace lmc
