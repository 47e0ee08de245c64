// Tokenizers: text to ids, and back. The ids are those of the library that a file belongs to:
// PyPI's `tokenizers` 0.23.3 for tokenizer.json, `sentencepiece` 0.2.3 for .model files.
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

// What a text becomes that spells a special token, such as "<|endoftext|>", or a token that stands
// around documents.
//   Text   ids of its characters: no text can forge a special token
//   Parse  the special token
//   Error  encode() returns an Error
enum class SpecialTokens { Text, Parse, Error };
// Returns the meaning of "text", "parse" or "error". Error: another name.
Result<SpecialTokens> parseSpecialTokens(std::string_view name);

// Encodes texts, one after the other. A thread needs an encoder of its own; it keeps the ids of
// words that it has seen.
class Encoder {
public:
  virtual ~Encoder() = default;
  // Appends the ids of `text`, valid UTF-8, without the ids that stand around a document (before()
  // and after()). Errors: a character has no token; a special token is spelled and shall be an
  // error; the text has a character for which the vocabulary has no token but one that stands
  // around documents; a regular expression needs too much memory.
  Result<void> encode(std::string_view text, std::vector<uint32_t> &ids);
  // The places of special tokens in texts that became text, since the encoder was made.
  uint64_t spelled() const { return places; }

protected:
  // `borders` are the ids that stand around documents.
  Encoder(SpecialTokens mode, std::span<const uint32_t> borders);

  const SpecialTokens mode;
  IdSet borders;
  uint64_t places = 0;

  // The same as encode(), but the text may become a border where a character is unknown.
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
  // Returns the bytes of text that each id below vocabulary() stands for: those of its own text,
  // with a space for each mark of one; 0 for special tokens and ids that no token has; 1 for a byte
  // of a character; nothing for the token of unknown characters.
  virtual Result<std::vector<std::optional<uint64_t>>> bytesOfTokens() const = 0;
  // Returns the id of a token, by what it looks like in the file; nothing if there is none.
  virtual std::optional<uint32_t> idOf(std::string_view token) const = 0;
  // A number that every id is below.
  uint32_t vocabulary() const { return limit; }
  // Ids that the tokenizer itself puts before and after a document.
  const std::vector<uint32_t> &before() const { return first; }
  const std::vector<uint32_t> &after() const { return last; }
  // The ids that begin and end a document, if the file names them.
  std::optional<uint32_t> beginOfDocument() const { return bos; }
  std::optional<uint32_t> endOfDocument() const { return eos; }
  // The id of characters that the vocabulary does not have, if there is one.
  std::optional<uint32_t> unknown() const { return unk; }

protected:
  uint32_t limit = 0;
  std::vector<uint32_t> first, last;
  std::optional<uint32_t> bos, eos, unk;
};

} // namespace lmc
