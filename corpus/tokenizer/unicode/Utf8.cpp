#include "corpus/tokenizer/unicode/Utf8.h"

#include <fmt/format.h>

namespace lmc {

void appendUtf8(std::string &text, char32_t c) {
  constexpr uint8_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
  int more = c < 0x80 ? 0 : c < 0x800 ? 1 : c < 0x10000 ? 2 : 3; // bytes after the first
  text += static_cast<char>(kLead[more] | c >> 6 * more);
  while (more-- > 0)
    text += static_cast<char>(0x80 | (c >> 6 * more & 0x3f));
}

// Returns the number of bytes of the character at the start of `bytes`; 0 if it is invalid. `part`
// is then the length of the longest prefix that could begin a character, at least 1 byte.
static size_t validLength(std::string_view bytes, size_t &part) {
  const auto lead = static_cast<uint8_t>(bytes[0]);
  part = 1;
  if (lead < 0x80)
    return 1;
  if (lead < 0xc2 || lead > 0xf4)
    return 0;
  // The bounds exclude overlong forms, surrogates, and code points above U+10FFFF.
  uint8_t lowest = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  uint8_t highest = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  const size_t length = utf8Length(bytes[0]);
  for (; part < length; ++part) {
    if (part == bytes.size())
      return 0;
    const auto byte = static_cast<uint8_t>(bytes[part]);
    if (byte < lowest || byte > highest)
      return 0;
    lowest = 0x80;
    highest = 0xbf;
  }
  return length;
}

size_t validUtf8Length(std::string_view bytes) {
  size_t part;
  return validLength(bytes, part);
}

std::string inQuotes(std::string_view text) {
  constexpr size_t kMost = 40; // bytes
  std::string result = "'";
  size_t at = 0;
  for (size_t end; at < text.size() && (end = at + utf8Length(text[at])) <= kMost; at = end)
    if (text[at] == '\n')
      result += "\\n";
    else if (static_cast<uint8_t>(text[at]) < 0x20 || text[at] == 0x7f)
      result += fmt::format("\\x{:02x}", text[at]);
    else
      result += text.substr(at, end - at);
  return result + (at < text.size() ? "...'" : "'");
}

std::string replaceInvalidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    size_t part;
    const size_t length = validLength(bytes, part);
    if (length > 0)
      text.append(bytes.substr(0, length));
    else
      text += "\xef\xbf\xbd"; // U+FFFD
    bytes.remove_prefix(length > 0 ? length : part);
  }
  return text;
}

} // namespace lmc
