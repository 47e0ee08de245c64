#include "corpus/tokenizer/PreTokenizer.h"

namespace lmc {

PreTokenizer makeSplit(Matcher matcher, SplitBehavior behavior, bool invert) {
  return [matcher = std::move(matcher), behavior, invert](Words &words, bool) -> Result<void> {
    const std::vector<std::string_view> whole = std::move(words.views);
    words.views.clear();
    for (std::string_view word : whole) {
      LMC_TRY(matcher(word, words.spans));
      if (invert)
        for (Span &span : words.spans)
          span.match = !span.match;
      applyBehavior(words.spans, behavior);
      for (const Span &span : words.spans)
        words.views.push_back(word.substr(span.begin, span.end - span.begin));
    }
    return {};
  };
}

PreTokenizer makeMetaspace(std::string mark, PrependScheme scheme, bool split) {
  return [=](Words &words, bool atBegin) -> Result<void> {
    const std::vector<std::string_view> whole = std::move(words.views);
    words.views.clear();
    for (std::string_view word : whole) {
      const bool prepends =
          scheme == PrependScheme::Always ||
          (scheme == PrependScheme::First && atBegin && word.data() == whole[0].data());
      std::string text;
      text.reserve(word.size() + word.size() / 2);
      if (prepends && word[0] != ' ' && !word.starts_with(mark))
        text += mark;
      for (size_t at = 0; at < word.size();) {
        const size_t space = std::min(word.find(' ', at), word.size());
        text += word.substr(at, space - at);
        if (space < word.size())
          text += mark;
        at = space + 1;
      }
      const std::string_view changed = words.storage.emplace_back(std::move(text));
      size_t begin = 0;
      for (size_t at; split && (at = changed.find(mark, begin + 1)) != changed.npos; begin = at)
        words.views.push_back(changed.substr(begin, at - begin));
      words.views.push_back(changed.substr(begin));
    }
    return {};
  };
}

PreTokenizer makePrefixSpace() {
  return [](Words &words, bool) -> Result<void> {
    for (std::string_view &word : words.views)
      if (word[0] != ' ')
        word = words.storage.emplace_back(1, ' ').append(word);
    return {};
  };
}

} // namespace lmc
