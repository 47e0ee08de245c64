// Lists the pairs of ops that the fusion passes merged or refused to merge, with the reasons.
#pragma once

#include "llvm/Support/raw_ostream.h"

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

// Two fusions, or two launches, that a pass considered for a merge.
struct FusionPair {
  bool isSiblings = false; // both read one tensor; otherwise the second reads a result of the first
  std::string function;
  std::string first, second; // the model ops that each computes: "lm.add+lm.rms_norm"
  std::string hero;          // of the merged kernel: "row_reduction"; "" if refused
  std::string refusal;       // why the merge was refused; "" if merged
  uint64_t bytes = 0;        // memory traffic that the merge saves, or would save
  double seconds = 0;        // the time of the saved traffic and of one launch

  bool operator==(const FusionPair &) const = default;
};

struct FusionEntry {
  FusionPair pair;
  int64_t times; // number of equal pairs in the function
};

using FusionReport = std::vector<FusionEntry>;

// Adds `pair` to `report`. If an equal pair is in the report, counts it there instead.
void add(FusionReport &report, FusionPair pair);

// Prints one line per entry of `report`.
void print(const FusionReport &report, llvm::raw_ostream &os);

} // namespace lmc
