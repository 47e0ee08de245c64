#include "tools/lmc-data/PackJournal.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"
#include "ground/support/Release.h"

#include <nlohmann/json.hpp>

#include <exception>

namespace lmc {

static constexpr uint64_t kMaximumJournalBytes = 64 << 20;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DocumentPlace, offset, number)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, count, places)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SplitPosition, document, bytes, cut)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Occurrences, count, documents, first)
using DocumentCounts = EncodedDocuments::Counts;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DocumentCounts, merged, inside, empty, spelled, unknown,
                                   fallback)
using Saved = TokenFileWriter::Saved;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Saved, tokens, documents, hash)
using Findings = Audit::Findings;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Findings, documents, bytes, repeated, repeatedBytes, control,
                                   controlCharacters, replaced, replacementCharacters, complete)
using AuditSaved = Audit::Saved;
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(AuditSaved, findings, texts)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(PackState, file, place, outputs, counts, audit, split)

static std::string stateOf(const std::string &output) {
  return partialFolder(output) + "/state.json";
}

std::optional<PackState> readPackState(const std::string &output, const nlohmann::json &identity,
                                       std::string &why) {
  if (!exists(stateOf(output)))
    return std::nullopt;
  auto json = readJsonObject(stateOf(output), kMaximumJournalBytes);
  try {
    if (json && json->at("identity") == identity)
      return json->at("state").get<PackState>();
    why = json ? "it was of other inputs or options" : "its state cannot be read";
  } catch (const std::exception &) { // another version of lmc-data wrote the file
    why = "its state cannot be read";
  }
  return std::nullopt;
}

Result<void> writePackState(const std::string &output, const nlohmann::json &identity,
                            const PackState &state) {
  return publishFile(stateOf(output),
                     nlohmann::json{{"identity", identity}, {"state", state}}.dump(
                         -1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json identityOfRelease() { return {kRelease.version, kRelease.commit}; }

} // namespace lmc
