// What of an unfinished pack is on the disk, from which the next one goes on after its process was
// killed. It lies in the folder of the unfinished token file, OUT.bin.partial.
#pragma once

#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/EncodedDocuments.h"
#include "tools/lmc-data/write/TokenFileWriter.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Where in all of the text a split into training and validation stands (Router in Pack.cpp).
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
  // `identity`: all that the token file depends on. A state of another identity is not gone on
  // with.
  PackJournal(const std::string &output, nlohmann::json identity)
      : folder(partialFolder(output)), identity(std::move(identity)) {}

  // Returns the state that an interrupted pack has left, or nullopt. If one is there that cannot be
  // used, `why` is a clause about it.
  std::optional<PackState> read(std::string &why) const;
  // Returns when the state is on the disk. What it counts must be there before.
  Result<void> write(const PackState &state) const;

private:
  std::string folder;
  nlohmann::json identity;
  std::string path() const { return folder + "/state.json"; }
};

// Returns what names this program: its release and the commit that it was built from.
nlohmann::json identityOfRelease();

} // namespace lmc
