#include "corpus/tokenizer/PreTokenizer.h"

namespace lmc {

namespace {

class SplitWords : public PreTokenizer {
public:
  SplitWords(std::unique_ptr<Matcher> matcher, SplitBehavior behavior, bool invert)
      : matcher(std::move(matcher)), behavior(behavior), invert(invert) {}

  Result<void> apply(Words &words, bool) const override {
    const std::vector<std::string_view> whole = std::move(words.views);
    words.views.clear();
    for (std::string_view word : whole) {
      LMC_TRY(matcher->search(word, words.spans));
      if (invert)
        for (Span &span : words.spans)
          span.match = !span.match;
      applyBehavior(words.spans, behavior);
      for (const Span &span : words.spans)
        words.views.push_back(word.substr(span.begin, span.end - span.begin));
    }
    return {};
  }

private:
  std::unique_ptr<Matcher> matcher;
  SplitBehavior behavior;
  bool invert;
};

class Metaspace : public PreTokenizer {
public:
  Metaspace(std::string mark, PrependScheme scheme, bool split)
      : mark(std::move(mark)), scheme(scheme), split(split) {}

  Result<void> apply(Words &words, bool atBegin) const override {
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
  }

private:
  std::string mark;
  PrependScheme scheme;
  bool split;
};

class PrefixSpace : public PreTokenizer {
public:
  Result<void> apply(Words &words, bool) const override {
    for (std::string_view &word : words.views)
      if (word[0] != ' ')
        word = words.storage.emplace_back(1, ' ').append(word);
    return {};
  }
};

class Several : public PreTokenizer {
public:
  explicit Several(std::vector<std::unique_ptr<PreTokenizer>> all) : all(std::move(all)) {}
  Result<void> apply(Words &words, bool atBegin) const override {
    for (const auto &one : all)
      LMC_TRY(one->apply(words, atBegin));
    return {};
  }

private:
  std::vector<std::unique_ptr<PreTokenizer>> all;
};

} // namespace

std::unique_ptr<PreTokenizer> makeSplit(std::unique_ptr<Matcher> matcher, SplitBehavior behavior,
                                        bool invert) {
  return std::make_unique<SplitWords>(std::move(matcher), behavior, invert);
}

std::unique_ptr<PreTokenizer> makeMetaspace(std::string mark, PrependScheme scheme, bool split) {
  return std::make_unique<Metaspace>(std::move(mark), scheme, split);
}

std::unique_ptr<PreTokenizer> makePrefixSpace() { return std::make_unique<PrefixSpace>(); }

std::unique_ptr<PreTokenizer>
makePreTokenizers(std::vector<std::unique_ptr<PreTokenizer>> preTokenizers) {
  if (preTokenizers.size() == 1)
    return std::move(preTokenizers[0]);
  return std::make_unique<Several>(std::move(preTokenizers));
}

} // namespace lmc
