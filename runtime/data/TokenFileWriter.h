// Writes a token file of the lmc format as a stream, all or nothing: the file appears under its
// name only when commit() succeeds.
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
    uint32_t vocabulary = 0;    // above every id; selects uint8, uint16 or uint32
    int32_t endOfDocument = -1; // recorded in the header, not inserted
  };
  // Creates PATH.partial-PID beside PATH. An existing PATH is unchanged until commit(). A PATH that
  // is not a regular file is an Error.
  static Result<std::unique_ptr<TokenFileWriter>> create(const std::string &path,
                                                         const Options &options);
  // Removes the partial file if there was no commit().
  ~TokenFileWriter();

  // Makes the next token start a document. A document without tokens is dropped.
  void beginDocument();
  // Appends ids to the current document. An id beyond the vocabulary is an Error.
  Result<void> append(std::span<const uint32_t> ids);
  uint64_t tokens() const;
  uint64_t documents() const;
  // Writes the table and the header and syncs, so that commit() can no longer fail for lack of
  // space. After an Error (a full disk, no tokens) only the files that existed before remain.
  Result<void> finish();
  // Finishes the file if necessary and gives it its name.
  Result<void> commit();

private:
  TokenFileWriter();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
