// Border tokens: tokens before, after or between documents.
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

// Finds the border tokens of the tokenizer in the file `path`. `bos` and `eod` are what the user
// gave: a token, an id (digits only) or "none". If they are not set, tokenizer_config.json and
// special_tokens_map.json beside the tokenizer decide. If these say nothing, the tokenizer decides.
//
// With "none", or "add_bos_token": false in a file, the tokens that the tokenizer itself would add
// there are left out. A bos that equals the eod is not written. Error: nothing says which token
// ends or begins a document, or the vocabulary does not have the token.
Result<DocumentTokens> documentTokens(const Tokenizer &tokenizer, const std::string &path,
                                      const std::optional<std::string> &bos,
                                      const std::optional<std::string> &eod);

} // namespace lmc
