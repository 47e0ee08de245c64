// Records the state of an unfinished pack on the disk, from which the next pack continues if the
// process was killed. The file lies in the folder of the unfinished token file, OUT.bin.partial.
#pragma once

#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/EncodedDocuments.h"
#include "tools/lmc-data/write/TokenFileWriter.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The position in the whole text of a split into training and validation (Router in Pack.cpp).
struct SplitPosition {
  uint64_t document = 0, bytes = 0, cut = 0;
};

// The state of a pack between two documents.
struct PackState {
  uint64_t file = 0;   // the input that is read
  DocumentPlace place; // where its next document begins
  std::vector<TokenFileWriter::Saved> outputs;
  EncodedDocuments::Counts counts;
  Audit::Saved audit;
  SplitPosition split;
};

class PackJournal {
public:
  // `identity` is everything on which the token file depends. A state of another identity is not
  // used.
  PackJournal(const std::string &output, nlohmann::json identity)
      : folder(partialFolder(output)), identity(std::move(identity)) {}

  // Returns the state that an interrupted pack has left, or nullopt. If a state exists but cannot
  // be used, `why` is a clause about the reason.
  std::optional<PackState> read(std::string &why) const;
  // Returns when the state is on the disk. The data that it counts must be there before.
  Result<void> write(const PackState &state) const;

private:
  std::string folder;
  nlohmann::json identity;
  std::string path() const { return folder + "/state.json"; }
};

// Returns what identifies this program: its release and its commit.
nlohmann::json identityOfRelease();

} // namespace lmc
