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
  std::optional<uint32_t> endOfDocument; // the token in `between`, `after` or `before` that marks
                                         // the end of a document; nullopt: none does
};

// Finds the border tokens of the tokenizer in the file `path`. The options `bos` and `eod` are each
// a token, an id (digits only) or "none". If an option is not given, tokenizer_config.json and
// special_tokens_map.json beside the tokenizer decide. If these say nothing, the tokenizer decides.
// A tokenizer may itself add tokens before and after a document. Its tokens before a document are
// left out if `bos` is "none", or if `bos` is not given and a file has "add_bos_token": false. Its
// tokens after a document are left out if `eod` is "none". A token that the tokenizer adds is not
// added a second time. A bos token that equals the eod token is not written. Error: nothing says
// which token begins or ends a document, or this token is not in the vocabulary.
Result<DocumentTokens> documentTokens(const Tokenizer &tokenizer, const std::string &path,
                                      const std::optional<std::string> &bos,
                                      const std::optional<std::string> &eod);

} // namespace lmc
