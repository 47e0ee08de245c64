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
  std::optional<uint32_t> endOfDocument; // ends documents: `between`, or one in `after` or `before`
};

// Finds the border tokens of the tokenizer in the file `path`. `bos` and `eod` are the user's
// options: a token, an id (digits only) or "none". Without an option, tokenizer_config.json and
// special_tokens_map.json beside the tokenizer decide. If these say nothing, the tokenizer decides.
//
// A tokenizer may itself add tokens to a document. Those before it are left out if `bos` is "none"
// or is not given and a file has "add_bos_token": false; those after it, if `eod` is "none". A
// token that the tokenizer adds is not added again. A bos that equals the eod is not written.
// Error: the begin or end token is not known, or is not in the vocabulary.
Result<DocumentTokens> documentTokens(const Tokenizer &tokenizer, const std::string &path,
                                      const std::optional<std::string> &bos,
                                      const std::optional<std::string> &eod);

} // namespace lmc
