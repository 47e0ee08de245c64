// Finds the fastest of several plans within a memory budget, when measuring the bytes of a plan is
// expensive because the plan must be compiled first.
//
// Each of these plans is a candidate: its time and a lower bound of its bytes are known before the
// plan is compiled. The bytes that count for a candidate are the larger of the bound and the
// measured bytes. The choice therefore depends only on the budget and the candidates, and not on
// which candidates were measured earlier:
//
//   fastest(budget) = the first candidate, in order of time, whose bytes are at most `budget`
//
// It follows that a smaller budget never gives a candidate that is faster or has more bytes, and
// that fastest() succeeds with a budget equal to the bytes of smallest(). A candidate whose bound
// exceeds the budget is not measured. With tight bounds, one or two candidates are measured.
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
  // Compiles the plan of a candidate and returns its bytes. Returns nothing when the plan could not
  // be made; the search then ends.
  using Measure = std::function<std::optional<uint64_t>(size_t candidate)>;

  // Candidate i+1 of `candidates` must not be faster than candidate i; see check().
  BudgetSearch(std::vector<BudgetCandidate> candidates, Measure measure);

  // Returns an error unless there is a candidate and the candidates are in order of rising time.
  Result<void> check() const;

  // Returns the fastest candidate within `budget` bytes; nothing when no candidate fits or a plan
  // could not be made.
  std::optional<size_t> fastest(uint64_t budget);

  // Returns the candidate with the fewest bytes, and among equal ones the fastest; nothing when a
  // plan could not be made. Measures at most `most` candidates, those with the lowest bounds. If
  // the bounds are far too low, a candidate that was not measured may need fewer bytes.
  std::optional<size_t> smallest(size_t most = SIZE_MAX);

  // Returns the bytes that count for a candidate. Measures the candidate if its bytes are not known
  // yet; returns nothing when its plan could not be made.
  std::optional<uint64_t> bytes(size_t candidate);

  // Returns true when a plan could not be made.
  bool failed() const { return broken; }

  // A candidate that was measured, and the measured bytes.
  struct Attempt {
    size_t candidate;
    uint64_t bytes;
  };
  const std::vector<Attempt> &attempts() const { return made; }

private:
  std::vector<BudgetCandidate> candidates;
  Measure measure;
  std::vector<std::optional<uint64_t>> known; // the bytes that count for each candidate
  std::vector<Attempt> made;
  bool broken = false;
};

} // namespace lmc
