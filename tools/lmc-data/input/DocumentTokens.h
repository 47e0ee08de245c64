// The tokens that stand around documents.
#pragma once

#include "corpus/tokenizer/Tokenizer.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct DocumentTokens {
  std::vector<uint32_t> before, after;   // of each document
  std::optional<uint32_t> between;       // written once between two documents
  std::optional<uint32_t> endOfDocument; // `between`, or one of `after` or `before`
};

// Finds the tokens of a tokenizer, whose file is `path`. `bos` and `eod` are what the user gave: a
// token, an id (digits only) or "none". Without them the files tokenizer_config.json and
// special_tokens_map.json beside the tokenizer decide, and then the tokenizer itself. A token that
// the tokenizer puts there itself is not added again, and a bos that is the eod is not written.
// With "none", or "add_bos_token": false in a file, the tokenizer does not add tokens there either.
// Error: no statement says what ends or begins a document, or a token is not in the vocabulary.
Result<DocumentTokens> documentTokens(const Tokenizer &tokenizer, const std::string &path,
                                      const std::optional<std::string> &bos,
                                      const std::optional<std::string> &eod);

} // namespace lmc
