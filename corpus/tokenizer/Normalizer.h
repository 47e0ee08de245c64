// Normalizers change a text before it is split.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <functional>
#include <string>

namespace lmc {

// Changes valid UTF-8 to valid UTF-8; an empty text stays empty. Sets `cutBegin` if the result's
// first character does not come from that of `text`. PrependScheme::First then adds no space mark.
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
