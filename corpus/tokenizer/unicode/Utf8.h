// Reads UTF-8 that is known to be valid. Makes any bytes valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc {

// Returns the number of bytes, 1 to 4, of the character whose first byte is `lead`.
constexpr size_t utf8Length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

// Returns the code point at byte `at` of valid UTF-8, and moves `at` to the next one.
constexpr char32_t readUtf8(std::string_view text, size_t &at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t lead = byte(0);
  char32_t c = lead;
  if (lead < 0x80) {
    at += 1;
  } else if (lead < 0xe0) {
    c = (lead & 0x1fu) << 6 | (byte(1) & 0x3fu);
    at += 2;
  } else if (lead < 0xf0) {
    c = (lead & 0x0fu) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    at += 3;
  } else {
    c = (lead & 0x07u) << 18 | (byte(1) & 0x3fu) << 12 | (byte(2) & 0x3fu) << 6 | (byte(3) & 0x3fu);
    at += 4;
  }
  return c;
}

// Moves `at` to the start of the character that ends before byte `at`. `at` must be above 0.
constexpr void stepBack(std::string_view text, size_t &at) {
  do
    --at;
  while ((static_cast<uint8_t>(text[at]) & 0xc0) == 0x80);
}

void appendUtf8(std::string &text, char32_t c);

// Returns the number of bytes of the first character of `bytes` (not empty); 0 if it is invalid.
size_t validUtf8Length(std::string_view bytes);

// Returns at most 40 bytes of `text` (valid UTF-8) in quotes, as one line: '\n' becomes "\n".
std::string inQuotes(std::string_view text);

// Returns `bytes` with U+FFFD for each invalid sequence of bytes, as Python's errors="replace" and
// Rust's from_utf8_lossy do (Unicode 15, chapter 3.9, "maximal subpart").
std::string replaceInvalidUtf8(std::string_view bytes);

} // namespace lmc
