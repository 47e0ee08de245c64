// Finds checkpoints whose writing takes longer than usual, for example on a shared disk.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace lmc {

// Compares the time of each save with the usual time, the median of the latest saves. A save is
// slow if it takes kRatio times the usual time and at least kExcess seconds longer.
class SlowSaveWatch {
public:
  static constexpr size_t kWindow = 10, kLeast = 2; // saves
  static constexpr double kRatio = 2, kExcess = 1;  // kExcess: seconds

  struct Found {
    double seconds = 0, usual = 0;
  };

  // Must be called with the seconds that a save has taken so far. Reports a slow save once.
  std::optional<Found> goesOn(double seconds);

  // Must be called with the seconds that a save took. Reports a slow save unless goesOn() did. No
  // save is slow before kLeast saves have ended.
  std::optional<Found> ended(double seconds);

  // Must be called if a save has failed; its time does not count.
  void failed() { reported = false; }

private:
  std::optional<Found> judge(double seconds) const;

  std::deque<double> latest; // seconds
  bool reported = false;     // true once goesOn() has reported the present save
};

} // namespace lmc
