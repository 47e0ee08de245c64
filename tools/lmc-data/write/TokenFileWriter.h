// Writes a token file as a stream, into the folder PATH.partial.
#pragma once

#include "ground/support/Result.h"
#include "tools/lmc-data/write/PartialFolder.h"

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
    // True: writes a data set of Megatron (megatron/core/datasets/indexed_dataset.py of
    // Megatron-LM) instead of an lmc file. PATH must end in ".bin". The index ends in ".idx", and
    // has one sequence per document. Tokens are uint16 if the vocabulary is below 65500, else
    // int32. `bytesOfTokens` is not written.
    bool megatron = false;
    // bytesOfTokens[id] is the number of bytes in the token's text, or kUnknownBytes. The vector
    // has `vocabulary` elements, or is empty if no token's size is known.
    std::vector<uint16_t> bytesOfTokens = {};
    // The value of LmcTokenHeader::tokenizer. If it is not 0, `bytesOfTokens` must be set.
    uint64_t tokenizer = 0;
  };
  // Describes the data that are on the disk when save() has returned.
  struct Saved {
    uint64_t tokens = 0, documents = 0;
    std::string hash; // the state of the checksum, in hexadecimal
  };
  // Empties the folder and begins a file. With `saved`, instead continues the file of an
  // interrupted process, which had the same `options`. An existing file PATH is unchanged. Errors:
  // PATH or its index is not a regular file; PartialFolder::empty() fails; with `megatron`, PATH
  // does not end in ".bin"; the folder has fewer data than `saved` counts.
  static Result<std::unique_ptr<TokenFileWriter>> create(std::shared_ptr<PartialFolder> folder,
                                                         const Options &options,
                                                         const Saved *saved = nullptr);

  // Removes the folder if neither release() nor save() was called.
  ~TokenFileWriter();

  // Makes the next appended token the start of a document. Documents without tokens are left out.
  void beginDocument();
  // Appends ids to the current document. Error: an id is not below the vocabulary.
  Result<void> append(std::span<const uint32_t> ids);
  uint64_t tokens() const;
  uint64_t documents() const;
  // Syncs all data so far to the disk.
  Result<Saved> save();
  // Writes and syncs all remaining data, so that publish() cannot fail for lack of space. Errors:
  // the disk is full; there are no tokens, and then the folder is removed.
  Result<void> finish();
  // Finishes the file if necessary, and returns the renames that give it its final name. The caller
  // must carry them out, and then remove the folder.
  Result<std::vector<Rename>> release();

private:
  TokenFileWriter();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
