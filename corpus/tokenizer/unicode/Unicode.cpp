#include "corpus/tokenizer/unicode/Unicode.h"

#include "corpus/tokenizer/unicode/Utf8.h"

#include <algorithm>
#include <unordered_map>

namespace lmc {

namespace {

#include "corpus/tokenizer/unicode/UnicodeTables.inc"

// The names of general categories, in the order of their numbers in kCategories.
constexpr std::string_view kCategoryNames[] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Zs", "Zl", "Zp", "Cc",
    "Cf", "Co", "Cn", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So"};

// Returns a set. `Flips` lists the code points at which membership in the set changes.
template <const auto &Flips> const CodePoints &setOf() {
  static const CodePoints set({std::begin(Flips), std::end(Flips)});
  return set;
}

// Returns the value of `c`. Each element of `runs` is (first code point of a run) << 8 | value.
uint32_t valueAt(std::span<const uint32_t> runs, char32_t c) {
  return *std::prev(std::upper_bound(runs.begin(), runs.end(), uint32_t(c) << 8 | 0xff)) & 0xff;
}

// A map from code points to strings. `entries` has pairs (code point, index << 8 | length). The
// string is text[index], ..., text[index + length - 1].
class Strings {
public:
  Strings(std::span<const uint32_t> entries, std::span<const uint32_t> text) : text(text) {
    for (size_t i = 0; i < entries.size(); i += 2)
      places.emplace(entries[i], entries[i + 1]);
  }
  std::span<const uint32_t> find(char32_t c) const {
    auto found = places.find(c);
    if (found == places.end())
      return {};
    return text.subspan(found->second >> 8, found->second & 0xff);
  }

private:
  std::span<const uint32_t> text;
  std::unordered_map<uint32_t, uint32_t> places;
};

// The constants of the Hangul algorithm (The Unicode Standard 15, chapter 3.12).
constexpr char32_t kSBase = 0xac00, kLBase = 0x1100, kVBase = 0x1161, kTBase = 0x11a7;
constexpr uint32_t kLCount = 19, kVCount = 21, kTCount = 28, kSCount = kLCount * kVCount * kTCount;

struct Point {
  char32_t c;
  uint32_t combining; // canonical combining class
};

void decompose(char32_t c, bool compatible, std::vector<Point> &out) {
  static const Strings canonicals(kCanonical, kCanonicalText);
  static const Strings compatibles(kCompatible, kCompatibleText);
  const auto add = [&](char32_t part) { out.push_back({part, valueAt(kCombining, part)}); };
  if (c < 0x80)
    return out.push_back({c, 0});
  if (c >= kSBase && c < kSBase + kSCount) {
    const uint32_t syllable = c - kSBase;
    out.push_back({kLBase + syllable / (kVCount * kTCount), 0});
    out.push_back({kVBase + syllable / kTCount % kVCount, 0});
    if (syllable % kTCount > 0)
      out.push_back({kTBase + syllable % kTCount, 0});
    return;
  }
  std::span<const uint32_t> parts;
  if (compatible)
    parts = compatibles.find(c);
  if (parts.empty())
    parts = canonicals.find(c);
  if (parts.empty())
    return add(c);
  for (uint32_t part : parts)
    add(part);
}

// Returns the character that `first` and `second` compose to, or 0.
char32_t compose(char32_t first, char32_t second) {
  static const auto pairs = [] {
    std::unordered_map<uint64_t, uint32_t> map;
    for (size_t i = 0; i < std::size(kCompositions); i += 3)
      map.emplace(uint64_t(kCompositions[i]) << 32 | kCompositions[i + 1], kCompositions[i + 2]);
    return map;
  }();
  if (first - kLBase < kLCount && second - kVBase < kVCount)
    return kSBase + ((first - kLBase) * kVCount + (second - kVBase)) * kTCount;
  if (first - kSBase < kSCount && (first - kSBase) % kTCount == 0 && second > kTBase &&
      second - kTBase < kTCount)
    return first + (second - kTBase);
  auto found = pairs.find(uint64_t(first) << 32 | second);
  return found == pairs.end() ? 0 : char32_t(found->second);
}

// Composes points in place, from the first starter (combining class 0) on.
void composeAll(std::vector<Point> &points) {
  size_t starter = 0, end = 0;
  bool hasStarter = false;
  for (const Point point : points) {
    if (hasStarter) {
      // A point cannot compose with a starter if one of equal or higher combining class is between.
      const bool adjacent = end == starter + 1;
      const bool blocked =
          !adjacent && (points[end - 1].combining >= point.combining || point.combining == 0);
      if (char32_t composed = blocked ? 0 : compose(points[starter].c, point.c)) {
        points[starter].c = composed;
        continue;
      }
    }
    if (point.combining == 0) {
      hasStarter = true;
      starter = end;
    }
    points[end++] = point;
  }
  points.resize(end);
}

// Returns true if the Hangul characters `before` and `c` belong to one grapheme cluster.
bool joinsHangul(char32_t before, char32_t c) {
  const auto within = [](char32_t x, char32_t first, char32_t last) {
    return x - first <= last - first;
  };
  const auto leading = [&](char32_t x) {
    return within(x, 0x1100, 0x115f) || within(x, 0xa960, 0xa97c);
  };
  const auto vowel = [&](char32_t x) {
    return within(x, 0x1160, 0x11a7) || within(x, 0xd7b0, 0xd7c6);
  };
  const auto trailing = [&](char32_t x) {
    return within(x, 0x11a8, 0x11ff) || within(x, 0xd7cb, 0xd7fb);
  };
  const auto syllable = [&](char32_t x) { return within(x, 0xac00, 0xd7a3); };
  if (leading(before))
    return leading(c) || vowel(c) || syllable(c);
  const bool open = syllable(before) && (before - 0xac00) % 28 == 0; // without a trailing consonant
  if (vowel(before) || open)
    return vowel(c) || trailing(c);
  return (trailing(before) || syllable(before)) && trailing(c);
}

} // namespace

bool CodePoints::contains(char32_t c) const {
  return (std::upper_bound(flips.begin(), flips.end(), uint32_t(c)) - flips.begin()) % 2 == 1;
}

const CodePoints &regex::space() { return setOf<kRegexSpace>(); }
const CodePoints &regex::word() { return setOf<kRegexWord>(); }

std::map<std::string_view, CodePoints> regex::properties() {
  std::map<std::string_view, std::vector<uint32_t>> flips;
  const size_t count = std::size(kCategories);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t begin = kCategories[i] >> 8;
    const uint32_t end = i + 1 < count ? kCategories[i + 1] >> 8 : 0x110000;
    const std::string_view category = kCategoryNames[kCategories[i] & 0xff];
    for (std::string_view name : {category, category.substr(0, 1)}) {
      std::vector<uint32_t> &own = flips[name];
      if (!own.empty() && own.back() == begin)
        own.back() = end;
      else
        own.insert(own.end(), {begin, end});
    }
  }
  std::map<std::string_view, CodePoints> sets{{"Han", setOf<kRegexHan>()}};
  for (auto &[name, own] : flips)
    sets.emplace(name, std::move(own));
  return sets;
}

const CodePoints &wordCharacters() { return setOf<kWord>(); }
const CodePoints &spaceCharacters() { return setOf<kSpace>(); }
const CodePoints &numericCharacters() { return setOf<kNumeric>(); }
const CodePoints &punctuationCharacters() { return setOf<kPunctuation>(); }
const CodePoints &markCharacters() { return setOf<kMark>(); }

size_t spaceBegin(std::string_view text, size_t begin, size_t end) {
  while (end > begin) {
    size_t last = end;
    stepBack(text, last);
    size_t at = last;
    if (!isSpace(readUtf8(text, at)))
      break;
    end = last;
  }
  return end;
}

void appendLowercase(std::string &text, char32_t c) {
  static const Strings lowercase(kLowercase, kLowercaseText);
  std::span<const uint32_t> lower = lowercase.find(c);
  if (lower.empty())
    return appendUtf8(text, c);
  for (uint32_t part : lower)
    appendUtf8(text, part);
}

size_t clusterEnd(std::string_view text, size_t begin) {
  const CodePoints &extends = setOf<kClusterExtend>(), &prepends = setOf<kClusterPrepend>(),
                   &controls = setOf<kClusterControl>(), &pictographs = setOf<kClusterPictograph>();
  constexpr char32_t kJoiner = 0x200d;
  size_t at = begin;
  char32_t before = readUtf8(text, at);
  bool afterPictograph = pictographs.contains(before); // `before` is a pictograph or extends one
  while (at < text.size()) {
    // A fast path: a cluster ends between two ASCII characters, unless the first is '\r'.
    if (before < 0x80 && before != '\r' && static_cast<uint8_t>(text[at]) < 0x80)
      return at;
    size_t end = at;
    const char32_t c = readUtf8(text, end);
    bool joined;
    if (before == '\r' && c == '\n')
      joined = true;
    else if (controls.contains(before) || controls.contains(c))
      joined = false;
    else
      joined = extends.contains(c) || prepends.contains(before) || joinsHangul(before, c) ||
               (afterPictograph && before == kJoiner && pictographs.contains(c));
    if (!joined)
      break;
    afterPictograph = pictographs.contains(c) || (afterPictograph && extends.contains(c));
    before = c;
    at = end;
  }
  return at;
}

std::string normalForm(std::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::NFKC || form == NormalForm::NFKD;
  const bool composed = form == NormalForm::NFC || form == NormalForm::NFKC;
  std::string result;
  result.reserve(text.size());
  std::vector<Point> points; // decomposed characters that are not in `result` yet
  for (size_t at = 0; at < text.size();) {
    // Copies ASCII characters unchanged, except one that a non-ASCII character follows.
    size_t plain = at;
    while (plain < text.size() && uint8_t(text[plain]) < 0x80)
      ++plain;
    if (plain > at && plain < text.size())
      --plain; // the last ASCII character may compose with the next character
    result.append(text.substr(at, plain - at));
    at = plain;
    points.clear();
    // Decomposes all characters up to the next ASCII character, or the end of the text.
    while (at < text.size()) {
      if (!points.empty() && uint8_t(text[at]) < 0x80)
        break;
      decompose(readUtf8(text, at), compatible, points);
    }
    const auto byClass = [](Point a, Point b) { return a.combining < b.combining; };
    for (auto first = points.begin(); first != points.end();) {
      first = std::find_if(first, points.end(), [](Point p) { return p.combining > 0; });
      auto last = std::find_if(first, points.end(), [](Point p) { return p.combining == 0; });
      std::stable_sort(first, last, byClass);
      first = last;
    }
    if (composed)
      composeAll(points);
    for (Point point : points)
      appendUtf8(result, point.c);
  }
  return result;
}

} // namespace lmc
