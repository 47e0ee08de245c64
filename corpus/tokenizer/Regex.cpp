// matchRegex(): matches regular expressions with the library Oniguruma.

#include "corpus/tokenizer/Matcher.h"
#include "corpus/tokenizer/unicode/Utf8.h"

#include <oniguruma.h>

#include <climits>
#include <map>
#include <memory>

namespace lmc {

namespace {

// A class of characters. `ranges` is for Oniguruma: the number of ranges, then both ends of each.
struct Class {
  std::string_view name;
  CodePoints set;
  std::vector<OnigCodePoint> ranges;
};

// Returns the classes that an expression can name, by number. \s, \w and \d have Oniguruma's
// numbers; properties (\p{L}) have larger numbers, which Oniguruma does not use.
const std::map<OnigCtype, Class> &classes() {
  static const auto all = [] {
    std::map<OnigCtype, Class> map;
    const auto add = [&](OnigCtype number, std::string_view name, const CodePoints &set) {
      std::vector<OnigCodePoint> ranges{OnigCodePoint(set.borders().size() / 2)};
      for (uint32_t border : set.borders())
        ranges.push_back(ranges.size() % 2 ? border : border - 1);
      map.emplace(number, Class{name, set, std::move(ranges)});
    };
    const std::map<std::string_view, CodePoints> properties = regex::properties();
    add(ONIGENC_CTYPE_SPACE, "", regex::space());
    add(ONIGENC_CTYPE_WORD, "", regex::word());
    add(ONIGENC_CTYPE_DIGIT, "", properties.at("Nd"));
    for (const auto &[name, set] : properties)
      add(ONIGENC_MAX_STD_CTYPE + 1 + map.size(), name, set);
    return map;
  }();
  return all;
}

// Sets Oniguruma's limits. Returns Oniguruma's UTF-8 encoding, changed to use classes().
OnigEncoding encoding() {
  constexpr unsigned long kMostSteps = 1'000'000'000; // limit per search; reaching it takes seconds
  static OnigEncodingType own = [] {
    OnigEncodingType type = OnigEncodingUTF8;
    type.property_name_to_ctype = [](OnigEncoding, OnigUChar *begin, OnigUChar *end) {
      for (const auto &[number, one] : classes())
        if (!one.name.empty() && std::equal(begin, end, one.name.begin(), one.name.end()))
          return int(number);
      return ONIGERR_INVALID_CHAR_PROPERTY_NAME;
    };
    // Oniguruma decides for characters below U+0100, because its \w outside of brackets matches six
    // of them that `set` does not have.
    type.is_code_ctype = [](OnigCodePoint c, OnigCtype number) {
      const auto found = classes().find(number);
      return c < 256 || found == classes().end() ? OnigEncodingUTF8.is_code_ctype(c, number)
                                                 : int(found->second.set.contains(c));
    };
    type.get_ctype_code_range = [](OnigCtype number, OnigCodePoint *singleBytes,
                                   const OnigCodePoint *ranges[]) {
      *singleBytes = 0x80;
      *ranges = classes().at(number).ranges.data();
      return 0;
    };
    onig_initialize(nullptr, 0);
    onig_set_parse_depth_limit(200); // a thread's stack suffices for this depth
    onig_set_retry_limit_in_match(kMostSteps);
    onig_set_retry_limit_in_search(kMostSteps);
    onig_set_match_stack_limit_size(100'000'000); // entries (4 GiB): enough for a 10^8-letter word
    return type;
  }();
  return &own;
}

struct FreeRegion {
  void operator()(OnigRegion *region) const { onig_region_free(region, 1); }
};

Result<void> search(regex_t *code, std::string_view text, std::vector<Span> &spans) {
  thread_local const std::unique_ptr<OnigRegion, FreeRegion> found(onig_region_new());
  spans.clear();
  if (text.size() > INT_MAX)
    return Error{"a document of 2 GiB or more cannot be split by a regular expression"};
  const auto *begin = reinterpret_cast<const OnigUChar *>(text.data());
  const OnigUChar *end = begin + text.size();
  size_t done = 0;
  do {
    const int result =
        onig_search(code, begin, end, begin + done, end, found.get(), ONIG_OPTION_NONE);
    if (result == ONIG_MISMATCH)
      break;
    if (result < 0)
      return userError("the regular expression that splits the text needs more than 4 GiB of "
                       "memory or 10^9 steps from byte {} on: {}",
                       done, inQuotes(text.substr(done)));
    const size_t first = found->beg[0], last = found->end[0];
    if (first == last)
      return Error{"an expression that can match the empty string is not supported"};
    addMatch(spans, first, last);
    done = last;
  } while (done < text.size());
  addGap(spans, text.size());
  return {};
}

// Compiles an expression, whether or not its meaning depends on the version of Unicode.
Result<Matcher> compile(std::string_view pattern) {
  const auto *begin = reinterpret_cast<const OnigUChar *>(pattern.data());
  regex_t *code;
  OnigErrorInfo info;
  if (int failed = onig_new(&code, begin, begin + pattern.size(), ONIG_OPTION_NONE, encoding(),
                            ONIG_SYNTAX_DEFAULT, &info)) {
    OnigUChar message[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(message, failed, &info);
    return userError("not a regular expression that is supported: {}",
                     reinterpret_cast<const char *>(message));
  }
  return Matcher([owned = std::shared_ptr<regex_t>(code, onig_free)](std::string_view text,
                                                                     std::vector<Span> &spans) {
    return search(owned.get(), text, spans);
  });
}

} // namespace

Result<Matcher> matchRegex(std::string_view pattern) {
  constexpr size_t kMostBytes = 64 << 10; // known tokenizers have far shorter patterns
  if (pattern.size() > kMostBytes)
    return userError("a regular expression of {} bytes, more than {}, is not supported",
                     pattern.size(), kMostBytes);
  // Finds the parts of an expression that would mean something else in another version of Unicode.
  static const auto refused =
      compile(R"(\[:|\\[hHXyY]|\(\?y|\(\?(?!i:[ -'*-\[\]_-~]*\))[A-Za-z-]*i[^)]*)");
  std::vector<Span> spans;
  LMC_TRY((*refused)(pattern, spans));
  for (const Span &span : spans)
    if (span.match)
      return userError("'{}' is not supported in a regular expression",
                       pattern.substr(span.begin, span.end - span.begin));
  LMC_LET(matcher, compile(pattern));
  LMC_TRY((*matcher)("", spans));
  return matcher;
}

} // namespace lmc
