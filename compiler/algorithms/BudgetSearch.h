// The fastest of several plans within a memory budget, when measuring the bytes of a plan is
// expensive because the plan has to be compiled for it.
//
// Each such plan is a candidate: its time and a lower bound of its bytes are known beforehand. The
// bytes that count for a candidate are the larger of the bound and the measured bytes. The choice
// therefore depends on the budget and the candidates alone, not on which candidates were measured
// before:
//
//   fastest(budget) = the first candidate, in order of time, whose bytes are at most `budget`
//
// It follows that a smaller budget never gives a faster candidate nor one of more bytes, and that a
// budget of smallest()'s bytes succeeds. A candidate whose bound exceeds the budget is not
// measured: with tight bounds one or two candidates are measured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct BudgetRung {
  double seconds = 0;
  uint64_t boundBytes = 0; // no plan of this candidate takes less
};

class BudgetSearch {
public:
  // Returns the bytes of a candidate's plan, or nothing when the plan could not be made, which ends
  // the search.
  using Measure = std::function<std::optional<uint64_t>(size_t rung)>;

  // The seconds along `rungs` must not fall; see check().
  BudgetSearch(std::vector<BudgetRung> rungs, Measure measure);

  // Returns an empty string when there is a candidate and the candidates are in order of time, else
  // what is wrong.
  std::string check() const;

  // Returns the fastest candidate within `budget` bytes; nothing when no candidate fits or a plan
  // failed.
  std::optional<size_t> fastest(uint64_t budget);

  // Returns the candidate of fewest bytes, and of equals the fastest; nothing when a plan failed.
  std::optional<size_t> smallest();

  // Returns the bytes that count for the candidate, measuring them if they are not known yet;
  // nothing when the plan failed.
  std::optional<uint64_t> bytes(size_t rung);

  // Returns true when a plan could not be made.
  bool failed() const { return broken; }

  // Candidates in the order in which they were measured, and the bytes of each.
  struct Attempt {
    size_t rung;
    uint64_t bytes;
  };
  const std::vector<Attempt> &attempts() const { return made; }

private:
  std::vector<BudgetRung> rungs;
  Measure measure;
  std::vector<std::optional<uint64_t>> known; // the bytes that count for each candidate
  std::vector<Attempt> made;
  bool broken = false;
};

} // namespace lmc
