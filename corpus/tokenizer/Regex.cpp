// Regular expressions: Matcher::regex.

#include "corpus/tokenizer/Matcher.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>

namespace lmc {

namespace {

// An expression as PCRE2 text in which sets of characters are left open: text[0], sets[0],
// text[1], ... There is one text more than there are sets.
struct Template {
  std::vector<std::string> text{""};
  std::vector<CodePoints> sets;

  void add(std::string_view words) { text.back() += words; }
  void add(CodePoints set) {
    sets.push_back(std::move(set));
    text.emplace_back();
  }
};

// Reads Oniguruma's syntax. Each function appends to `out` what it has read.
class Parser {
public:
  explicit Parser(std::string_view pattern) : pattern(pattern) {}

  Template out;

  Result<void> parse() {
    if (pattern.size() > kMostBytes)
      return refuse(
          fmt::format("a pattern of {} bytes, more than {},", pattern.size(), kMostBytes));
    auto shortest = alternatives(false);
    LMC_TRY(shortest);
    if (at < pattern.size())
      return refuse("an unmatched ')'");
    if (*shortest == 0)
      return refuse("an expression that can match the empty string");
    return {};
  }

private:
  // Far beyond the patterns of known tokenizers, and little enough for the stack and the memory.
  static constexpr size_t kMostBytes = 64 << 10, kMostLevels = 200;

  std::string_view pattern;
  size_t at = 0;
  size_t levels = 0; // of brackets that are open

  // A bracket opens. The caller closes it with --levels.
  Result<void> open() {
    if (++levels > kMostLevels)
      return refuse(fmt::format("brackets in more than {} levels", kMostLevels));
    return {};
  }
  Error refuse(const std::string &what) const {
    return Error{fmt::format("{} is not supported in a regular expression (at byte {})", what, at)};
  }
  bool accept(std::string_view words) {
    if (!pattern.substr(at).starts_with(words))
      return false;
    at += words.size();
    return true;
  }
  bool done() const { return at == pattern.size(); }

  // The functions below return the least number of characters that what they have read matches.

  Result<size_t> alternatives(bool anyCase) {
    auto shortest = sequence(anyCase);
    LMC_TRY(shortest);
    while (accept("|")) {
      out.add("|");
      auto next = sequence(anyCase);
      LMC_TRY(next);
      *shortest = std::min(*shortest, *next);
    }
    return shortest;
  }

  Result<size_t> sequence(bool anyCase) {
    size_t length = 0;
    std::string letters; // the literal letters just read, in lower case
    while (!done() && pattern[at] != '|' && pattern[at] != ')') {
      const char letter = pattern[at];
      if (anyCase && isLetter(letter)) {
        // Without regard to case, Oniguruma also matches one character that stands for several
        // letters, for example U+FB01 for "fi".
        letters += static_cast<char>(letter | 0x20);
        for (const char *several : {"ss", "ff", "fi", "fl", "st"})
          if (letters.ends_with(several))
            return refuse(fmt::format("'{}' without regard to case", several));
      } else {
        letters.clear();
      }
      auto next = repeated(anyCase);
      LMC_TRY(next);
      length += *next;
    }
    return length;
  }

  static bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

  // An atom with its quantifier.
  Result<size_t> repeated(bool anyCase) {
    const size_t textBefore = out.text.size() - 1, lengthBefore = out.text.back().size();
    const bool assertion = pattern.substr(at).starts_with("(?=") ||
                           pattern.substr(at).starts_with("(?!") ||
                           pattern.substr(at).starts_with("(?<");
    auto shortest = atom(anyCase);
    LMC_TRY(shortest);
    auto count = quantifier();
    LMC_TRY(count);
    if (!count->has_value())
      return assertion ? 0 : *shortest;
    const Quantifier &times = **count;
    if (assertion || (*shortest == 0 && times.most > 1))
      return refuse("a quantifier after what can match the empty string");
    if (times.repeatedAgain) {
      out.text[textBefore].insert(lengthBefore, "(?:");
      out.add(times.text + ")+");
    } else {
      out.add(times.text);
    }
    return *shortest * times.least;
  }

  struct Quantifier {
    std::string text; // for PCRE2
    size_t least, most;
    bool repeatedAgain = false; // "{2}+" is (?:{2})+ in Ruby's syntax
  };

  Result<std::optional<Quantifier>> quantifier() {
    if (done())
      return std::optional<Quantifier>();
    std::optional<Quantifier> result;
    const bool interval = pattern[at] == '{';
    if (accept("*"))
      result = Quantifier{"*", 0, SIZE_MAX};
    else if (accept("+"))
      result = Quantifier{"+", 1, SIZE_MAX};
    else if (accept("?"))
      result = Quantifier{"?", 0, 1};
    else if (interval) {
      auto read = braces();
      LMC_TRY(read);
      result = *read;
    } else
      return result;
    if (accept("?")) {
      if (interval && result->least == result->most)
        return refuse("'{n}?'");
      result->text += '?';
    } else if (accept("+")) {
      if (interval)
        result->repeatedAgain = true;
      else
        result->text += '+';
    }
    if (!done() && std::string_view("*+?{").find(pattern[at]) != std::string_view::npos)
      return refuse("a quantifier after a quantifier");
    return result;
  }

  // {n}, {n,}, {,m} or {n,m}
  Result<Quantifier> braces() {
    const size_t close = pattern.find('}', at);
    if (close == pattern.npos)
      return refuse("a '{' that begins no quantifier");
    const std::string_view inside = pattern.substr(at + 1, close - at - 1);
    const size_t comma = inside.find(',');
    const auto number = [](std::string_view digits) -> std::optional<size_t> {
      if (digits.empty() || digits.size() > 4 ||
          digits.find_first_not_of("0123456789") != digits.npos)
        return std::nullopt;
      return std::stoul(std::string(digits));
    };
    const std::string_view first = inside.substr(0, comma);
    const std::string_view second = comma == inside.npos ? first : inside.substr(comma + 1);
    auto least = number(first), most = number(second);
    if (comma != inside.npos && first.empty() && most)
      least = 0;
    if (comma != inside.npos && second.empty() && least)
      most = SIZE_MAX;
    if (!least || !most || *least > *most)
      return refuse("a '{' that begins no quantifier");
    at = close + 1;
    if (*most == SIZE_MAX)
      return Quantifier{fmt::format("{{{},}}", *least), *least, *most};
    return Quantifier{fmt::format("{{{},{}}}", *least, *most), *least, *most};
  }

  Result<size_t> atom(bool anyCase) {
    if (pattern[at] == '(')
      return group(anyCase);
    if (pattern[at] == '[') {
      auto set = bracket(anyCase);
      LMC_TRY(set);
      out.add(std::move(*set));
      return size_t(1);
    }
    if (pattern[at] == '\\') {
      auto set = escape();
      LMC_TRY(set);
      if (anyCase && set->single)
        return refuse("an escape without regard to case");
      out.add(std::move(set->set));
      return size_t(1);
    }
    if (accept(".")) {
      out.add(CodePoints::range('\n', '\n').complement());
      return size_t(1);
    }
    if (std::string_view("^$*+?{").find(pattern[at]) != std::string_view::npos)
      return refuse(fmt::format("'{}' at this place", pattern[at]));
    const char32_t c = readUtf8(pattern, at);
    if (anyCase && c >= 0x80)
      return refuse("a letter beyond ASCII without regard to case");
    out.add(anyCase ? bothCases(c) : CodePoints::range(c, c));
    return size_t(1);
  }

  // An ASCII character with those that are equal to it without regard to case.
  static CodePoints bothCases(char32_t c) {
    CodePoints set = CodePoints::range(c, c);
    if (c >= 0x80 || !isLetter(static_cast<char>(c)))
      return set;
    set = set.united(CodePoints::range(c ^ 0x20, c ^ 0x20));
    if ((c | 0x20) == 's')
      set = set.united(CodePoints::range(0x17f, 0x17f)); // long s
    if ((c | 0x20) == 'k')
      set = set.united(CodePoints::range(0x212a, 0x212a)); // Kelvin sign
    return set;
  }

  Result<size_t> group(bool anyCase) {
    static constexpr std::string_view kKinds[] = {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};
    bool found = false;
    for (std::string_view kind : kKinds)
      if (accept(kind)) {
        out.add(kind);
        found = true;
        break;
      }
    if (!found && accept("(?i:")) {
      out.add("(?:");
      anyCase = found = true;
    }
    if (!found && pattern.substr(at).starts_with("(?"))
      return refuse(fmt::format("'{}'", pattern.substr(at, 3)));
    if (!found) {
      ++at; // A group that captures: only the whole match is used.
      out.add("(?:");
    }
    LMC_TRY(open());
    auto shortest = alternatives(anyCase);
    LMC_TRY(shortest);
    if (!accept(")"))
      return refuse("an unmatched '('");
    --levels;
    out.add(")");
    return shortest;
  }

  struct Escaped {
    CodePoints set;
    std::optional<char32_t> single; // the character, if it is one
  };

  Result<Escaped> escape() {
    const size_t begin = at++;
    if (done())
      return refuse("a '\\' at the end");
    const char letter = pattern[at++];
    const auto one = [](char32_t c) { return Escaped{CodePoints::range(c, c), c}; };
    const auto set = [](const CodePoints &points) { return Escaped{points, std::nullopt}; };
    static constexpr std::string_view kLetters = "nrtfvae", kMeanings = "\n\r\t\f\v\a\x1b";
    if (size_t known = kLetters.find(letter); known != kLetters.npos)
      return one(kMeanings[known]);
    switch (letter) {
    case 's':
      return set(regex::space());
    case 'S':
      return set(regex::space().complement());
    case 'w':
      return set(regex::word());
    case 'W':
      return set(regex::word().complement());
    case 'd':
      return set(*regex::property("Nd"));
    case 'D':
      return set(regex::property("Nd")->complement());
    case 'p':
    case 'P': {
      const size_t close = pattern.find('}', at);
      if (at == pattern.size() || pattern[at] != '{' || close == pattern.npos)
        break;
      std::string_view name = pattern.substr(at + 1, close - at - 1);
      bool negated = letter == 'P';
      if (name.starts_with('^')) {
        negated = !negated;
        name.remove_prefix(1);
      }
      std::optional<CodePoints> property = regex::property(name);
      if (!property)
        break;
      at = close + 1;
      return set(negated ? property->complement() : *property);
    }
    case 'x':
    case 'u': {
      size_t digits = letter == 'u' ? 4 : 2, first = at;
      if (letter == 'x' && at < pattern.size() && pattern[at] == '{') {
        first = at + 1;
        const size_t close = pattern.find('}', at);
        digits = close == pattern.npos ? 0 : close - first;
      }
      const std::string hex(pattern.substr(std::min(first, pattern.size()), digits));
      // "\x80" is a byte and no character.
      if (hex.size() != digits || digits < 2 || digits > 6 ||
          hex.find_first_not_of("0123456789abcdefABCDEF") != hex.npos ||
          (first == at && letter == 'x' && std::stoul(hex, nullptr, 16) >= 0x80) ||
          std::stoul(hex, nullptr, 16) > 0x10ffff)
        break;
      const auto c = static_cast<char32_t>(std::stoul(hex, nullptr, 16));
      at = first + digits + (first > at ? 1 : 0);
      return one(c);
    }
    default:
      if (static_cast<uint8_t>(letter) < 0x80 && !isLetter(letter) &&
          !(letter >= '0' && letter <= '9'))
        return one(letter);
    }
    at = begin;
    const size_t close = pattern.find('}', begin);
    const bool named = letter == 'p' || letter == 'P' || letter == 'x';
    return refuse(fmt::format(
        "'{}'", pattern.substr(begin, named && close != pattern.npos ? close + 1 - begin : 2)));
  }

  Result<CodePoints> bracket(bool anyCase) {
    ++at;
    LMC_TRY(open());
    const bool negated = accept("^");
    if (anyCase && negated)
      return refuse("'[^' without regard to case");
    CodePoints set;
    bool empty = true;
    for (; !accept("]"); empty = false) {
      if (done())
        return refuse("an unmatched '['");
      if (pattern.substr(at).starts_with("&&") || pattern.substr(at).starts_with("[:"))
        return refuse(fmt::format("'{}' in '[]'", pattern.substr(at, 2)));
      if (pattern[at] == '[') {
        auto inner = bracket(anyCase);
        LMC_TRY(inner);
        set = set.united(*inner);
        continue;
      }
      auto first = member();
      LMC_TRY(first);
      if (pattern.substr(at).starts_with("-") && !pattern.substr(at).starts_with("-]")) {
        if (!first->single)
          return refuse("a range that begins with a class");
        ++at;
        auto last = done() ? refuse("an unmatched '['") : member();
        LMC_TRY(last);
        if (!last->single || *last->single < *first->single || anyCase)
          return refuse("this range");
        set = set.united(CodePoints::range(*first->single, *last->single));
        continue;
      }
      if (anyCase && (!first->single || *first->single >= 0x80))
        return refuse("a class or a letter beyond ASCII in '[]' without regard to case");
      set = set.united(anyCase ? bothCases(*first->single) : first->set);
    }
    if (empty)
      return refuse("'[]'");
    --levels;
    return negated ? set.complement() : set;
  }

  // A character or a class inside of brackets.
  Result<Escaped> member() {
    if (pattern[at] == '\\')
      return escape();
    if (pattern[at] == '[')
      return refuse("'[' in a range");
    const char32_t c = readUtf8(pattern, at);
    return Escaped{CodePoints::range(c, c), c};
  }
};

// Says of each character which kind it is.
class Kinds {
public:
  // Returns kinds such that each of the sets is a union of kinds; `members[i]` are the kinds of
  // sets[i]. Error: there are more than 256.
  static Result<Kinds> divide(const std::vector<CodePoints> &sets,
                              std::vector<std::vector<uint8_t>> &members) {
    std::vector<uint32_t> borders{0, 0x110000};
    for (const CodePoints &set : sets)
      borders.insert(borders.end(), set.borders().begin(), set.borders().end());
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());

    Kinds kinds;
    std::vector<uint8_t> kindOf(0x110000);
    std::map<std::vector<bool>, uint8_t> known; // by which sets the characters are in
    members.assign(sets.size(), {});
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      std::vector<bool> in(sets.size());
      for (size_t s = 0; s < sets.size(); ++s)
        in[s] = sets[s].contains(borders[i]);
      if (known.size() == 256 && !known.contains(in))
        return Error{
            "a regular expression with more than 256 kinds of characters is not supported"};
      auto [place, isNew] = known.emplace(in, static_cast<uint8_t>(known.size()));
      for (size_t s = 0; isNew && s < sets.size(); ++s)
        if (in[s])
          members[s].push_back(place->second);
      std::fill(kindOf.begin() + borders[i], kindOf.begin() + borders[i + 1], place->second);
    }
    std::copy_n(kindOf.begin(), kinds.ascii.size(), kinds.ascii.begin());
    // Pages of 256 characters, equal ones once.
    std::map<std::vector<uint8_t>, uint16_t> pages;
    for (size_t page = 0; page < kinds.pageOf.size(); ++page) {
      std::vector<uint8_t> one(kindOf.begin() + page * 256, kindOf.begin() + (page + 1) * 256);
      auto [place, isNew] = pages.emplace(one, static_cast<uint16_t>(pages.size()));
      if (isNew)
        kinds.pages.insert(kinds.pages.end(), one.begin(), one.end());
      kinds.pageOf[page] = place->second;
    }
    return kinds;
  }

  // Writes the kind of each character to `kinds`, and the byte that each begins at, and the size
  // of the text, to `offsets`. `offsets` stays empty if the text is ASCII.
  void classify(std::string_view text, std::vector<uint8_t> &kinds,
                std::vector<uint32_t> &offsets) const {
    kinds.resize(text.size());
    offsets.clear();
    size_t at = 0;
    while (at < text.size() && static_cast<uint8_t>(text[at]) < 0x80) {
      kinds[at] = ascii[static_cast<uint8_t>(text[at])];
      ++at;
    }
    if (at == text.size())
      return;
    offsets.resize(text.size() + 1);
    for (size_t i = 0; i < at; ++i)
      offsets[i] = static_cast<uint32_t>(i);
    size_t count = at;
    while (at < text.size()) {
      offsets[count] = static_cast<uint32_t>(at);
      const char32_t c = readUtf8(text, at);
      kinds[count++] = pages[size_t(pageOf[c >> 8]) << 8 | (c & 0xff)];
    }
    offsets[count] = static_cast<uint32_t>(at);
    kinds.resize(count);
  }

private:
  std::array<uint8_t, 128> ascii{};
  std::array<uint16_t, 0x1100> pageOf{};
  std::vector<uint8_t> pages;
};

// What a thread needs to match; all expressions share it.
struct Workspace {
  static constexpr uint32_t kMostSteps = 1'000'000'000; // of one match: seconds
  static constexpr size_t kMostBytes = 64 << 20;        // of its stack
  pcre2_match_data *data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context *context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack *stack = pcre2_jit_stack_create(32 << 10, kMostBytes, nullptr);
  std::vector<uint8_t> kinds;
  std::vector<uint32_t> offsets;

  Workspace() {
    pcre2_set_match_limit(context, kMostSteps);
    pcre2_set_depth_limit(context, kMostSteps);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

class RegexMatcher : public Matcher {
public:
  RegexMatcher(pcre2_code *code, Kinds kinds) : code(code), kinds(std::move(kinds)) {
    compiled = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
  }
  ~RegexMatcher() override { pcre2_code_free(code); }

  Result<void> search(std::string_view text, std::vector<Span> &spans) const override {
    thread_local Workspace work;
    spans.clear();
    if (text.size() >= UINT32_MAX)
      return Error{"a document of 4 GiB or more cannot be split by a regular expression"};
    kinds.classify(text, work.kinds, work.offsets);
    const size_t size = work.kinds.size();
    const uint32_t *offsets = work.offsets.empty() ? nullptr : work.offsets.data();
    const auto byteOf = [&](size_t character) { return offsets ? offsets[character] : character; };
    const size_t *found = pcre2_get_ovector_pointer(work.data);
    const auto match = compiled ? pcre2_jit_match : pcre2_match;
    size_t done = 0;
    while (done < size) {
      const int code = match(this->code, work.kinds.data(), size, done, 0, work.data, work.context);
      if (code == PCRE2_ERROR_NOMATCH)
        break;
      if (code < 0)
        return Error{
            fmt::format("the regular expression that splits the text needs more than 64 MiB "
                        "of memory or 10^9 steps from byte {} on: {}",
                        byteOf(done), inQuotes(text.substr(byteOf(done))))};
      addGap(spans, byteOf(done), byteOf(found[0]));
      spans.push_back({byteOf(found[0]), byteOf(found[1]), true});
      done = found[1];
    }
    addGap(spans, byteOf(done), text.size());
    return {};
  }

private:
  pcre2_code *code;
  Kinds kinds;
  bool compiled = false; // to machine code
};

// Writes the set of these kinds in PCRE2's syntax.
std::string kindSet(const std::vector<uint8_t> &members) {
  if (members.empty())
    return "(?:(?!))"; // matches nothing
  std::string set = "[";
  for (uint8_t kind : members)
    set += fmt::format("\\x{:02x}", kind);
  return set + "]";
}

} // namespace

Result<std::unique_ptr<Matcher>> Matcher::regex(std::string_view pattern) {
  Parser parser(pattern);
  LMC_TRY(parser.parse());
  const Template &read = parser.out;
  std::vector<std::vector<uint8_t>> members;
  auto kinds = Kinds::divide(read.sets, members);
  LMC_TRY(kinds);
  std::string text = read.text[0];
  for (size_t i = 0; i < read.sets.size(); ++i)
    text += kindSet(members[i]) + read.text[i + 1];
  int error;
  size_t offset;
  pcre2_code *code = pcre2_compile(reinterpret_cast<const uint8_t *>(text.data()), text.size(), 0,
                                   &error, &offset, nullptr);
  if (!code) {
    uint8_t message[256];
    pcre2_get_error_message(error, message, sizeof(message));
    return Error{fmt::format("not a regular expression that is supported: {}",
                             reinterpret_cast<const char *>(message))};
  }
  return std::unique_ptr<Matcher>(std::make_unique<RegexMatcher>(code, std::move(*kinds)));
}

} // namespace lmc
