// Finds the fastest of several plans within a memory budget, when a plan must be compiled before
// its bytes are known.
//
// Each plan is a candidate. Its time and a lower bound of its bytes are known. Compiling the plan
// measures its bytes. The search uses the larger of the bound and the measured bytes:
//
//   fastest(budget) = the fastest candidate whose bytes are at most `budget`
//
// The choice depends only on the budget and the candidates, and not on earlier measurements. A
// smaller budget never gives a faster candidate, or one with more bytes. A candidate whose bound
// exceeds the budget is not compiled.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace lmc {

struct BudgetCandidate {
  double seconds = 0;
  uint64_t boundBytes = 0; // no plan of this candidate needs fewer bytes
  bool isSpare = false;    // fastest() and smallest() never return this candidate
};

class BudgetSearch {
public:
  // Compiles the plan of a candidate and returns its bytes. Returns nothing if the plan could not
  // be made; the search then ends.
  using Measure = std::function<std::optional<uint64_t>(size_t candidate)>;

  // Candidate i+1 of `candidates` must not be faster than candidate i; see check().
  BudgetSearch(std::vector<BudgetCandidate> candidates, Measure measure);

  // Returns an error unless there is a candidate and the times never fall along the list.
  Result<void> check() const;

  // Returns the fastest candidate that needs at most `budget` bytes. Returns nothing when no
  // candidate fits or a plan could not be made.
  std::optional<size_t> fastest(uint64_t budget);

  // Returns the candidate with the fewest bytes, the fastest if there are several; nothing if a
  // plan could not be made. Considers only the `most` candidates with the lowest bounds.
  std::optional<size_t> smallest(size_t most = SIZE_MAX);

  // Returns the larger of a candidate's bound and its measured bytes; compiles its plan if
  // necessary. Returns nothing when the plan could not be made.
  std::optional<uint64_t> bytes(size_t candidate);

  // Returns true when the plan of any candidate could not be made.
  bool failed() const { return broken; }

  struct Attempt {
    size_t candidate;
    uint64_t bytes; // measured
  };
  const std::vector<Attempt> &attempts() const { return made; }

private:
  std::vector<BudgetCandidate> candidates;
  Measure measure;
  std::vector<std::optional<uint64_t>> known; // bytes() of each compiled candidate
  std::vector<Attempt> made;
  bool broken = false;
};

} // namespace lmc
