// Normalizers change a text before it is split.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

class Normalizer {
public:
  virtual ~Normalizer() = default;
  // Changes valid UTF-8 to valid UTF-8; an empty text stays empty. Sets `cutBegin` if the new first
  // character does not come from the old first character. Metaspace's scheme "first" needs to know.
  virtual Result<void> apply(std::string &text, bool &cutBegin) const = 0;
};

std::unique_ptr<Normalizer> makeNormalForm(NormalForm form);
std::unique_ptr<Normalizer> makeLowercase();
std::unique_ptr<Normalizer> makeStripAccents();
std::unique_ptr<Normalizer> makeStrip(bool left, bool right);
std::unique_ptr<Normalizer> makePrepend(std::string text);
std::unique_ptr<Normalizer> makeReplace(std::unique_ptr<Matcher> matcher, std::string content);
std::unique_ptr<Normalizer> makeNmt();
// Applies `charsmap`, the table of replacements in a model file of SentencePiece. Error: the table
// is damaged.
Result<std::unique_ptr<Normalizer>> makePrecompiled(std::string_view charsmap);
std::unique_ptr<Normalizer> makeSequence(std::vector<std::unique_ptr<Normalizer>> normalizers);

} // namespace lmc
