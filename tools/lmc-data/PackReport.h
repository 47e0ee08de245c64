// The report of `lmc-data pack`: on the console, and as JSON beside the token file.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/EncodedDocuments.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct PackReport {
  struct File {
    std::string path;
    uint64_t tokens = 0, documents = 0;
    std::string part; // which text a validation file has; "": this is the training file
  };
  std::vector<std::string> inputs;
  std::string tokenizer; // "": no tokenizer, each token is a byte
  std::vector<File> files;
  std::optional<uint32_t> endOfDocument;
  std::vector<uint32_t> beginOfDocument;
  EncodedDocuments::Counts counts;
  Audit::Findings findings;

  std::string text() const;
  Result<void> write(const std::string &path) const;
  // Returns an Error that lists all findings that --strict forbids, if there are any.
  Result<void> checkStrict() const;
};

} // namespace lmc
