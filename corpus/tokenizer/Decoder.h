// Decoders turn the pieces of ids back into text.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

class Decoder {
public:
  virtual ~Decoder() = default;
  // Changes `pieces`, which make up the text one after the other.
  virtual Result<void> apply(std::vector<std::string> &pieces) const = 0;
};

// Returns the byte of a piece "<0xHH>", or -1.
int byteOfPiece(const std::string &piece);

// Maps GPT-2's characters back to bytes; bytes that are not UTF-8 become U+FFFD.
std::unique_ptr<Decoder> makeByteLevelDecoder();
// Turns runs of pieces "<0xHH>" into text; each piece of a run that is not UTF-8 becomes U+FFFD.
std::unique_ptr<Decoder> makeByteFallbackDecoder();
// Makes one piece of all.
std::unique_ptr<Decoder> makeFuseDecoder();
// Turns each `mark` into a space; with `dropsFirst`, removes the marks of the first piece instead.
std::unique_ptr<Decoder> makeMetaspaceDecoder(std::string mark, bool dropsFirst);
std::unique_ptr<Decoder> makeReplaceDecoder(std::unique_ptr<Matcher> matcher, std::string content);
// Removes up to `start` characters `content` at the beginning of each piece, and up to `stop` at
// its end.
std::unique_ptr<Decoder> makeStripDecoder(std::string content, size_t start, size_t stop);
std::unique_ptr<Decoder> makeSequenceDecoder(std::vector<std::unique_ptr<Decoder>> decoders);

} // namespace lmc
