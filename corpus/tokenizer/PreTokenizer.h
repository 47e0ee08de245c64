// Pre-tokenizers split a text into words. A model then encodes each word alone.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// The words of a text, in order; none is empty. A changed word is a view of `storage`.
struct Words {
  std::vector<std::string_view> views;
  std::deque<std::string> storage;
  std::vector<Span> spans; // for searches
};

// Splits each word, and may change it. With `atBegin`, the first word begins the document.
using PreTokenizer = std::function<Result<void>(Words &words, bool atBegin)>;

// Splits words at the matches of `matcher`; with `invert`, at the gaps between matches.
PreTokenizer makeSplit(Matcher matcher, SplitBehavior behavior, bool invert);

// The words before which Metaspace adds a missing space mark: a document's first one, none, or all.
enum class PrependScheme { First, Never, Always };
// Replaces spaces with `mark`, a character. With `split`, splits before each mark.
PreTokenizer makeMetaspace(std::string mark, PrependScheme scheme, bool split);

// Puts a space before each word that does not begin with a space.
PreTokenizer makePrefixSpace();

} // namespace lmc
