// Tokenizers convert text to ids, and back. With a tokenizer.json, the ids are those of PyPI's
// `tokenizers` 0.23.3; with a .model file, they are those of `sentencepiece` 0.2.3.
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

// How to encode text that spells a special token, such as "<|endoftext|>", or a border token:
//   Text   It is encoded as any other text, so no text can forge a special token.
//   Parse  It becomes the id of the special token.
//   Error  encode() returns an Error.
enum class SpecialTokens { Text, Parse, Error };
// Returns the mode with the name "text", "parse" or "error". Error: there is no such mode.
Result<SpecialTokens> parseSpecialTokens(std::string_view name);

// Encodes texts. An encoder remembers the ids of words, so each thread needs its own encoder.
class Encoder {
public:
  virtual ~Encoder() = default;
  // Appends the ids of `text` (valid UTF-8), without before() and after(). Errors: a character has
  // no token (BPE of a tokenizer.json without unk_token leaves it out), or has only a border token;
  // `text` spells a special token in mode Error; a regular expression needs too much memory.
  Result<void> encode(std::string_view text, std::vector<uint32_t> &ids);
  // Returns how many special tokens stood in texts, and were encoded as ordinary text.
  uint64_t spelled() const { return places; }

protected:
  // `borders` are the ids of border tokens, which stand between documents.
  Encoder(SpecialTokens mode, std::span<const uint32_t> borders);

  const SpecialTokens mode;
  IdSet borders;
  uint64_t places = 0; // number of spelled special tokens that became text

  // Encodes `text` as encode() does. An unknown character may get the id of a border token.
  virtual Result<void> encodeText(std::string_view text, std::vector<uint32_t> &ids) = 0;
  // Counts the special token that begins at byte `at` of `text`. In mode Error, returns an Error.
  Result<void> countSpelled(std::string_view text, size_t at);
};

class Tokenizer {
public:
  // Reads a tokenizer.json, or a .model of SentencePiece. The Error names the file and the place in
  // it: "a/tokenizer.json: pre_tokenizer.type: 'BertPreTokenizer' is not supported".
  static Result<std::shared_ptr<const Tokenizer>> open(const std::string &path);
  virtual ~Tokenizer() = default;

  // Makes encoders for `count` threads. The tokenizer must outlive them. Unless `mode` is Parse, no
  // text becomes an id of `borders`. Error: a model of SentencePiece has no mode Parse.
  virtual Result<std::vector<std::unique_ptr<Encoder>>>
  encoders(size_t count, SpecialTokens mode, std::span<const uint32_t> borders = {}) const = 0;
  // Returns the text of ids. Ids without a token are left out.
  virtual Result<std::string> decode(std::span<const uint32_t> ids) const = 0;
  // Returns, for each id below vocabulary(), the number of bytes of its text: 1 for a space mark or
  // a byte piece, 0 for a special token or an unused id, and nullopt for the unknown token.
  virtual Result<std::vector<std::optional<uint64_t>>> bytesOfTokens() const = 0;
  // Returns the id of the token that the file writes as `token`, if there is such a token.
  virtual std::optional<uint32_t> idOf(std::string_view token) const = 0;
  // Returns a number that is larger than every id.
  uint32_t vocabulary() const { return limit; }
  // Return the ids that the tokenizer itself adds before and after a document.
  const std::vector<uint32_t> &before() const { return first; }
  const std::vector<uint32_t> &after() const { return last; }
  // Return the ids that begin and end a document, if the file names them.
  std::optional<uint32_t> beginOfDocument() const { return bos; }
  std::optional<uint32_t> endOfDocument() const { return eos; }
  // Returns the id that stands for characters without a token, if there is such an id.
  std::optional<uint32_t> unknown() const { return unk; }

protected:
  uint32_t limit = 0;
  std::vector<uint32_t> first, last;
  std::optional<uint32_t> bos, eos, unk;
};

} // namespace lmc
