// Writes a token file of the lmc format, streaming and all or nothing: the file
// appears under its name when commit() succeeds, and not before.
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
    uint32_t vocabulary = 0;    // every id is below; chooses uint8, uint16 or uint32
    int32_t endOfDocument = -1; // recorded in the header, not inserted
  };
  // Makes PATH.partial-PID beside PATH. An existing PATH stays as it is until
  // commit(); anything but a regular file there is refused.
  static Result<std::unique_ptr<TokenFileWriter>> create(const std::string &path,
                                                         const Options &options);
  // Without a commit(), removes what was written.
  ~TokenFileWriter();

  // The next token starts a document. A document without tokens is not kept.
  void beginDocument();
  // Appends ids to the document. An id beyond the vocabulary is an Error.
  Result<void> append(std::span<const uint32_t> ids);
  uint64_t tokens() const;
  uint64_t documents() const;
  // Writes the table and the header and syncs: what a disk can refuse is done. An
  // Error (a full disk, no tokens) leaves nothing behind but what was there before.
  Result<void> finish();
  // Finishes the file if that is not done, and gives it its name.
  Result<void> commit();

private:
  TokenFileWriter();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
