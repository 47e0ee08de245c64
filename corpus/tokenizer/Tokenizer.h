// Tokenizers convert text to ids, and back. The ids are those of the library that a file belongs
// to: PyPI's `tokenizers` 0.23.3 for tokenizer.json, `sentencepiece` 0.2.3 for .model files.
#pragma once

#include "corpus/tokenizer/models/Model.h"
#include "ground/support/Result.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lmc {

// How text is encoded that spells a special token, such as "<|endoftext|>", or a border token.
//   Text   as any other text, so that no text can forge a special token
//   Parse  as the id of the special token
//   Error  not at all: encode() returns an Error
enum class SpecialTokens { Text, Parse, Error };
// Returns the mode with the name "text", "parse" or "error". Error: there is no such mode.
Result<SpecialTokens> parseSpecialTokens(std::string_view name);

// Encodes texts, one after the other. An encoder remembers the ids of words that it has seen, and
// each thread needs an encoder of its own.
class Encoder {
public:
  virtual ~Encoder() = default;
  // Appends the ids of `text`, valid UTF-8, without the ids that stand around a document (before()
  // and after()). Errors: a character has no token; the text spells a special token and the mode is
  // Error; the text has a character for which the vocabulary has no token but one that stands
  // around documents; a regular expression needs too much memory.
  Result<void> encode(std::string_view text, std::vector<uint32_t> &ids);
  // Returns how many spelled special tokens became text since the encoder was made.
  uint64_t spelled() const { return places; }

protected:
  // `borders` are the ids of the tokens that stand around documents.
  Encoder(SpecialTokens mode, std::span<const uint32_t> borders);

  const SpecialTokens mode;
  IdSet borders;
  uint64_t places = 0; // number of spelled special tokens that became text

  // Does the same as encode(), but an unknown character may become a border.
  virtual Result<void> encodeText(std::string_view text, std::vector<uint32_t> &ids) = 0;
  // Counts a special token that `text` spells at byte `at`, or returns the Error about it.
  Result<void> countSpelled(std::string_view text, size_t at);
};

class Tokenizer {
public:
  // Reads a tokenizer.json, or a .model of SentencePiece. Errors name the file and what in it is
  // not supported: "a/tokenizer.json: pre_tokenizer.type: 'BertPreTokenizer' is not supported".
  static Result<std::shared_ptr<const Tokenizer>> open(const std::string &path);
  virtual ~Tokenizer() = default;

  // Makes encoders for `count` threads. The tokenizer must outlive them. `borders` are ids that
  // stand around documents: unless `mode` is Parse, no text becomes one of them. Error: a model of
  // SentencePiece and Parse.
  virtual Result<std::vector<std::unique_ptr<Encoder>>>
  encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders = {}) const = 0;
  // Returns the text of ids. An id that no token has is left out.
  virtual Result<std::string> decode(std::span<const uint32_t> ids) const = 0;
  // Returns, for each id below vocabulary(), the number of bytes of text that it stands for. A
  // space mark counts as one byte, a special token and an unused id as 0, and a byte piece as 1.
  // The token of unknown characters has no number.
  virtual Result<std::vector<std::optional<uint64_t>>> bytesOfTokens() const = 0;
  // Returns the id of the token that the file writes as `token`; nothing if there is none.
  virtual std::optional<uint32_t> idOf(std::string_view token) const = 0;
  // Returns a number that is larger than every id.
  uint32_t vocabulary() const { return limit; }
  // Return the ids that the tokenizer itself adds before and after a document.
  const std::vector<uint32_t> &before() const { return first; }
  const std::vector<uint32_t> &after() const { return last; }
  // Return the ids that begin and end a document, if the file names them.
  std::optional<uint32_t> beginOfDocument() const { return bos; }
  std::optional<uint32_t> endOfDocument() const { return eos; }
  // Returns the id of characters that the vocabulary does not have, if there is such an id.
  std::optional<uint32_t> unknown() const { return unk; }

protected:
  uint32_t limit = 0;
  std::vector<uint32_t> first, last;
  std::optional<uint32_t> bos, eos, unk;
};

} // namespace lmc
