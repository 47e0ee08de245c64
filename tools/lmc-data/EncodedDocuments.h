// Encodes documents in several threads, with the same result for any number of threads.
#pragma once

#include "corpus/tokenizer/Tokenizer.h"
#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/input/DocumentTokens.h"
#include "tools/lmc-data/input/Documents.h"
#include "tools/lmc-data/write/TokenFileWriter.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

class EncodedDocuments {
public:
  struct Counts {
    Occurrences merged;   // end-of-document ids removed at the edges of documents
    Occurrences inside;   // end-of-document ids inside documents
    Occurrences empty;    // documents that had no ids and were left out
    Occurrences spelled;  // texts of special tokens, encoded as ordinary text
    Occurrences unknown;  // ids of unknown characters
    Occurrences fallback; // ids of single bytes of characters outside of the vocabulary
    void add(const Counts &other);
  };

  // Makes encoders for `threads` threads; 0: one per processor. References must outlive the object.
  static Result<std::unique_ptr<EncodedDocuments>> create(const Tokenizer &tokenizer,
                                                          const DocumentTokens &borders,
                                                          SpecialTokens mode, uint32_t threads,
                                                          TokenFileWriter &writer);

  // Adds a document (valid UTF-8). Error: a document of the present batch cannot be encoded, or
  // tokens cannot be written.
  Result<void> add(std::string document, const DocumentName &name);
  Result<void> finish();
  const Counts &counts() const { return total; }

private:
  EncodedDocuments(const Tokenizer &tokenizer, std::vector<std::unique_ptr<Encoder>> encoders,
                   const DocumentTokens &borders, TokenFileWriter &writer);

  const DocumentTokens &borders;
  TokenFileWriter &writer;
  std::optional<uint32_t> unknown; // the id of unknown characters
  IdSet fallback;                  // ids of the tokens "<0x00>" to "<0xFF>", if all exist
  std::vector<std::unique_ptr<Encoder>> encoders; // one per thread
  struct Waiting {
    std::string text;
    DocumentName name;
  };
  std::vector<Waiting> waiting;
  size_t waitingBytes = 0;
  Counts total;

  Result<void> write(std::vector<uint32_t> &ids, const DocumentName &name);
};

} // namespace lmc
