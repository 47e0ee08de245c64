// Pre-tokenizers split a text into the words that a model encodes one by one.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// Words of one text, in its order; none is empty. Words are views of the text, or of `storage` if a
// pre-tokenizer has changed them.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
  std::vector<Span> spans; // for searches
};

class PreTokenizer {
public:
  virtual ~PreTokenizer() = default;
  // Splits each word, and may change it. `atBegin` is true if the first word begins where the
  // document begins.
  virtual Result<void> apply(Words &words, bool atBegin) const = 0;
};

// Splits words at the matches of `matcher`; with `invert`, at the text between matches.
std::unique_ptr<PreTokenizer> makeSplit(std::unique_ptr<Matcher> matcher, SplitBehavior behavior,
                                        bool invert);

// When Metaspace puts its mark before a word that does not begin with the mark.
enum class PrependScheme { First, Never, Always };
// Replaces spaces with `mark`, a character, and splits before each mark.
std::unique_ptr<PreTokenizer> makeMetaspace(std::string mark, PrependScheme scheme, bool split);

// Puts a space before each word that does not begin with one.
std::unique_ptr<PreTokenizer> makePrefixSpace();

std::unique_ptr<PreTokenizer>
makePreTokenizers(std::vector<std::unique_ptr<PreTokenizer>> preTokenizers);

} // namespace lmc
