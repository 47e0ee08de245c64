// The fastest of several plans within a memory budget, when the bytes of a plan are dear to
// find out: a plan has to be made for that.
//
// Of each plan, a rung, the time and a lower bound of its bytes are known beforehand. A rung
// counts with the larger of its bound and its measured bytes, so that what is chosen depends
// on the budget and the rungs alone, not on which of them were measured before:
//
//   fastest(budget) = the first rung, in order of time, that counts with `budget` at most
//
// It follows that a smaller budget never gives a faster rung, nor one that counts with more
// bytes, and that the budget smallest() names is one that works. Rungs whose bound is beyond
// the budget are passed over unmeasured: with tight bounds one or two are measured.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct BudgetRung {
  double seconds = 0;
  uint64_t boundBytes = 0; // no plan of it takes less
};

class BudgetSearch {
public:
  // The bytes of a rung's plan; nothing when it could not be made, which ends a search.
  using Measure = std::function<std::optional<uint64_t>(size_t rung)>;

  // The seconds of `rungs` rise or stay; see check().
  BudgetSearch(std::vector<BudgetRung> rungs, Measure measure);

  // Empty when there are rungs, in order of time, else what is wrong.
  std::string check() const;

  // The first rung within `budget` bytes; none when there is none, or on a failure.
  std::optional<size_t> fastest(uint64_t budget);

  // The rung that counts with the fewest bytes, the fastest of equals; none on a failure.
  std::optional<size_t> smallest();

  // What the rung counts with: measured now if it was not before. None on a failure.
  std::optional<uint64_t> bytes(size_t rung);

  // Whether a plan could not be made.
  bool failed() const { return broken; }

  // Rungs in the order in which they were measured, and the bytes of each.
  struct Attempt {
    size_t rung;
    uint64_t bytes;
  };
  const std::vector<Attempt> &attempts() const { return made; }

private:
  std::vector<BudgetRung> rungs;
  Measure measure;
  std::vector<std::optional<uint64_t>> known; // what a rung counts with
  std::vector<Attempt> made;
  bool broken = false;
};

} // namespace lmc
