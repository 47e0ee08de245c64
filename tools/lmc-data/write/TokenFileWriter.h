// Writes a token file as a stream. A file with the final name appears only when publish() of what
// release() returns succeeds; until then all data is in the folder PATH.partial.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/write/PartialFolder.h"
#include "tools/lmc-data/write/Publish.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lmc {

class TokenFileWriter {
public:
  struct Options {
    uint32_t vocabulary = 0;    // larger than every id; selects the type of tokens
    int32_t endOfDocument = -1; // written into the header only, not between documents
    // True: writes a data set of Megatron, which has no bytes of tokens, instead of an lmc file:
    // PATH, which ends in ".bin", with uint16 tokens if the vocabulary is below 65500, else int32,
    // and beside it the ".idx" with one sequence per document (DType.optimal_dtype and
    // IndexedDatasetBuilder in Megatron-LM's megatron/core/datasets/indexed_dataset.py).
    bool megatron = false;
    // Per id below the vocabulary, its bytes of text or kUnknownBytes; empty: not known.
    std::vector<uint16_t> bytesOfTokens = {};
    // LmcTokenHeader::tokenizer; it needs `bytesOfTokens`.
    uint64_t tokenizer = 0;
  };
  // Empties the folder of PATH, which an interrupted process may have left. An existing file PATH
  // is unchanged. Errors: PATH or its index is not a regular file; that of PartialFolder::empty();
  // with `megatron`, PATH does not end in ".bin".
  static Result<std::unique_ptr<TokenFileWriter>> create(std::shared_ptr<PartialFolder> folder,
                                                         const Options &options);

  // The part of the file that is on the disk for certain.
  struct Saved {
    uint64_t tokens = 0, documents = 0;
    std::string hash; // the state of the checksum, in hexadecimal
  };
  // Continues what an interrupted process has left, after the tokens that `saved` counts. `options`
  // must be those of that process. Error: the folder has less.
  static Result<std::unique_ptr<TokenFileWriter>>
  resume(std::shared_ptr<PartialFolder> folder, const Options &options, const Saved &saved);

  // Removes the folder if there was no release() and no save(). A saved folder stays for resume().
  ~TokenFileWriter();

  // Makes the next appended token the start of a document. Documents without tokens are left out.
  void beginDocument();
  // Appends ids to the current document. Error: an id is not below the vocabulary.
  Result<void> append(std::span<const uint32_t> ids);
  uint64_t tokens() const;
  uint64_t documents() const;
  // Returns when all data so far is on the disk.
  Result<Saved> save();
  // Writes the table of documents and the header or the index, and syncs them, so that publish()
  // cannot fail for lack of space. After an Error (a full disk, no tokens) the folder is gone,
  // unless it was saved.
  Result<void> finish();
  // Finishes the file if necessary, and returns the renames that give it its name. The caller then
  // removes the folder.
  Result<std::vector<Rename>> release();

private:
  TokenFileWriter();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
