#include "compiler/search/RecomputeNotes.h"

#include <nlohmann/json.hpp>

using namespace lmc;
using nlohmann::json;

// Returns each kind's first option, as an index into the joined lists of all kinds' options.
static std::vector<size_t> firstOptions(const RecomputeOptions &options) {
  std::vector<size_t> first;
  size_t sum = 0;
  for (const RecomputeKind &kind : options.kinds) {
    first.push_back(sum);
    sum += kind.options.size();
  }
  return first;
}

json lmc::recomputeNotes(const RecomputeOptions &options, llvm::ArrayRef<int64_t> choice) {
  json notes = {{"options", json::array()}, {"layers", json::array()}};
  for (const RecomputeKind &kind : options.kinds)
    for (const RecomputeOption &option : kind.options)
      notes["options"].push_back(
          {{"name", options.kinds.size() > 1 ? kind.layer + "/" + option.name : option.name},
           {"kept_bytes", option.keptBytes},
           {"seconds", option.seconds},
           {"recomputed", option.ops}});
  std::vector<size_t> first = firstOptions(options);
  for (auto [kind, option] : llvm::zip_equal(options.layers, choice))
    notes["layers"].push_back(first[size_t(kind)] + size_t(option));
  return notes;
}

json lmc::recomputeNotes(RecomputeSearch &search, size_t candidate, llvm::StringRef mode,
                         int64_t microSteps) {
  const std::vector<RecomputeCandidate> &candidates = search.candidates();
  json notes = recomputeNotes(search.options(), candidates[candidate].options);
  notes["mode"] = mode.str();
  std::vector<size_t> first = firstOptions(search.options());
  for (auto [kind, measured] : llvm::enumerate(search.measured().kinds))
    for (auto [index, option] : llvm::enumerate(measured)) {
      json &entry = notes["options"][first[kind] + index];
      entry["kept_bytes"] = option.keptBytes;
      entry["transient_bytes"] = option.transientBytes;
      entry["seconds"] = (option.seconds - measured[0].seconds) / double(microSteps);
    }
  notes["attempts"] = json::array();
  for (const BudgetSearch::Attempt &attempt : search.budgets().attempts())
    notes["attempts"].push_back({{"options", search.nameOf(candidates[attempt.candidate])},
                                 {"loss_chunk", candidates[attempt.candidate].lossChunk},
                                 {"peak_bytes", attempt.bytes},
                                 {"seconds", candidates[attempt.candidate].seconds}});
  return notes;
}

json lmc::keptWeightsNotes(const RecomputeSearch &search, size_t candidate) {
  const RecomputeSearch::KeptWeights kept = search.keptWeights(search.candidates()[candidate]);
  return {{"kept_layers", kept.layers},
          {"kept_bytes", kept.bytes},
          {"saved_seconds_per_step", kept.seconds}};
}
