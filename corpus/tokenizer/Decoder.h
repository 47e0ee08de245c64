// Decoders turn pieces back into the encoded text. A piece is the vocabulary's text of an id.
#pragma once

#include "corpus/tokenizer/Matcher.h"
#include "ground/support/Result.h"

#include <functional>
#include <string>
#include <vector>

namespace lmc {

// Changes `pieces` so that they give the decoded text when joined.
using Decoder = std::function<Result<void>(std::vector<std::string> &pieces)>;

// Returns the byte 0xHH of a piece "<0xHH>"; -1 for any other piece.
int byteOfPiece(const std::string &piece);

// Maps GPT-2's characters for bytes back to the bytes. Bytes that are not UTF-8 become U+FFFD.
Decoder makeByteLevelDecoder();
// Turns each run of pieces "<0xHH>" into the text of these bytes. If the run is not UTF-8, each of
// its bytes becomes U+FFFD.
Decoder makeByteFallbackDecoder();
Decoder makeFuseDecoder();
// Turns each `mark` into a space. With `dropsFirst`, removes the marks of the first piece.
Decoder makeMetaspaceDecoder(std::string mark, bool dropsFirst);
Decoder makeReplaceDecoder(Matcher matcher, std::string content);
// Removes `content` up to `start` times from the front of each piece, and up to `stop` times from
// its end.
Decoder makeStripDecoder(std::string content, size_t start, size_t stop);

} // namespace lmc
