// Writes a token file of the lmc format as a stream. A file with the final name appears only when
// commit() succeeds.
#pragma once

#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lmc {

class TokenFileWriter {
public:
  struct Options {
    uint32_t vocabulary = 0;    // larger than every id; selects uint8, uint16 or uint32 tokens
    int32_t endOfDocument = -1; // written into the header only, not between documents
  };
  // Creates the file PATH.partial-PID. An existing file PATH is unchanged until commit(). Error:
  // PATH is not a regular file.
  static Result<std::unique_ptr<TokenFileWriter>> create(const std::string &path,
                                                         const Options &options);
  // Removes the partial file if there was no commit().
  ~TokenFileWriter();

  // Makes the next appended token the start of a document. Documents without tokens are left out.
  void beginDocument();
  // Appends ids to the current document. Error: an id is not below the vocabulary.
  Result<void> append(std::span<const uint32_t> ids);
  uint64_t tokens() const;
  uint64_t documents() const;
  // Writes the table of documents and the header, and syncs the file, so that commit() cannot fail
  // for lack of space. After an Error (a full disk, no tokens) the partial file is gone.
  Result<void> finish();
  // Finishes the file if necessary and gives it its name.
  Result<void> commit();

private:
  TokenFileWriter();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
