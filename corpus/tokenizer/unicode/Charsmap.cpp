#include "corpus/tokenizer/unicode/Charsmap.h"

#include "corpus/tokenizer/unicode/Utf8.h"

#include <cstring>

namespace lmc {

// Return the bit fields of a unit (an element) of the trie's double array.
static bool hasLeaf(uint32_t unit) { return unit >> 8 & 1; }
static uint32_t value(uint32_t unit) { return unit & 0x7fffffff; }
static uint32_t label(uint32_t unit) { return unit & (1u << 31 | 0xff); }
static uint32_t offset(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

// Returns true for the second and later bytes of a character in UTF-8.
static bool continuesCharacter(char byte) { return (static_cast<uint8_t>(byte) & 0xc0) == 0x80; }

Result<Charsmap> Charsmap::parse(std::string_view blob) {
  uint32_t bytes = 0;
  if (blob.size() > sizeof(bytes))
    std::memcpy(&bytes, blob.data(), sizeof(bytes));
  if (bytes == 0 || bytes % sizeof(uint32_t) != 0 || bytes >= blob.size() - sizeof(bytes))
    return Error{"the table is cut short"};
  Charsmap map;
  map.units.resize(bytes / sizeof(uint32_t));
  std::memcpy(map.units.data(), blob.data() + sizeof(bytes), bytes);
  map.replacements = blob.substr(sizeof(bytes) + bytes);
  if (map.replacements.back() != '\0' || replaceInvalidUtf8(map.replacements) != map.replacements)
    return Error{"the replacements are damaged"};
  const auto isValue = [&](size_t node) { return label(map.units[node]) > 0xff; };
  if (label(map.units[0]) != 0 || hasLeaf(map.units[0]) || offset(map.units[0]) == 0)
    return Error{"the trie has no root"};
  for (size_t node = 0; node < map.units.size(); ++node) {
    const uint32_t unit = map.units[node];
    const size_t child = node ^ offset(unit);
    const bool good = isValue(node)
                          ? value(unit) < map.replacements.size()
                          : (child | 0xff) < map.units.size() && (!hasLeaf(unit) || isValue(child));
    if (!good)
      return userError("node {} of the trie is damaged", node);
  }
  return map;
}

std::optional<Charsmap::Match> Charsmap::find(std::string_view text, bool shortest) const {
  std::optional<Match> found;
  size_t node = offset(units[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    node ^= static_cast<uint8_t>(text[i]);
    if (label(units[node]) != static_cast<uint8_t>(text[i]))
      break;
    const uint32_t unit = units[node];
    node ^= offset(unit);
    if (!hasLeaf(unit))
      continue;
    // Ignores an entry of a damaged table that begins or ends in the middle of a character.
    if (continuesCharacter(replacements[value(units[node])]) ||
        (i + 1 < text.size() && continuesCharacter(text[i + 1])))
      continue;
    found = Match{i + 1, replacements.c_str() + value(units[node])};
    if (shortest)
      break;
  }
  return found;
}

bool Charsmap::keeps(char a, char b) const {
  const auto child = [&](size_t node, char byte) -> std::optional<size_t> {
    node ^= static_cast<uint8_t>(byte);
    if (label(units[node]) != static_cast<uint8_t>(byte))
      return std::nullopt;
    return node;
  };
  const auto first = child(offset(units[0]), a);
  return !first || (!hasLeaf(units[*first]) && !child(*first ^ offset(units[*first]), b));
}

} // namespace lmc
