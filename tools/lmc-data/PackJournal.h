// Records the state of an unfinished pack in OUT.bin.partial, from which the next pack continues.
#pragma once

#include "tools/lmc-data/Audit.h"
#include "tools/lmc-data/EncodedDocuments.h"
#include "tools/lmc-data/write/TokenFileWriter.h"

#include <nlohmann/json_fwd.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// A position in the whole text, which Pack.cpp splits into training and validation data.
struct SplitPosition {
  uint64_t document = 0, bytes = 0, cut = 0;
};

struct PackState {
  uint64_t file = 0;   // index of the input that is read
  DocumentPlace place; // where the next document in this input begins
  std::vector<TokenFileWriter::Saved> outputs;
  EncodedDocuments::Counts counts;
  Audit::Saved audit;
  SplitPosition split;
};

// Returns the state that an interrupted pack of the token file `output` has left, or nullopt. That
// pack must have had the same `identity`. If a state exists but cannot be used, sets `why` to a
// clause with the reason.
std::optional<PackState> readPackState(const std::string &output, const nlohmann::json &identity,
                                       std::string &why);
// Writes and syncs the state. All data that the state counts must be on the disk before.
Result<void> writePackState(const std::string &output, const nlohmann::json &identity,
                            const PackState &state);

nlohmann::json identityOfRelease();

} // namespace lmc
