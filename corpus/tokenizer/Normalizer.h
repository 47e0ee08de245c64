// Normalizers change a text before it is split.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <functional>
#include <string>

namespace lmc {

// Changes `text` from valid UTF-8 to valid UTF-8; an empty text stays empty. Sets `cutBegin` if the
// first character of `text` is removed, or if makeReplace() replaces it together with the next one.
// If `cutBegin` is set, PrependScheme::First adds no space mark. makePrecompiled() never sets it.
using Normalizer = std::function<Result<void>(std::string &text, bool &cutBegin)>;

Normalizer makeNormalForm(NormalForm form);
Normalizer makeLowercase();
Normalizer makeStripAccents();
Normalizer makeStrip(bool left, bool right);
Normalizer makePrepend(std::string text);
Normalizer makeReplace(Matcher matcher, std::string content);
Normalizer makeNmt();
// Applies a SentencePiece model's table of replacements (Charsmap.h). Error: the table is damaged.
Result<Normalizer> makePrecompiled(std::string_view charsmap);

} // namespace lmc
