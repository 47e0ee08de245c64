// Finds checkpoints whose writing takes longer than usual, for example on a shared disk.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace lmc {

// Compares the time of each save with those of the saves before it. A save is slow if it takes
// twice the usual time and a second longer; the usual time is the median of the latest ones.
class SlowSaveWatch {
public:
  static constexpr size_t kWindow = 10, kLeast = 2; // saves
  static constexpr double kRatio = 2, kExcess = 1;  // kExcess in seconds

  struct Found {
    double seconds = 0, usual = 0;
  };

  // Must be called with the seconds that a save has taken so far. Returns a slow save once.
  std::optional<Found> goesOn(double seconds);

  // Must be called with the seconds that a save took. Returns a slow save unless goesOn() did. No
  // save is slow before kLeast saves are known.
  std::optional<Found> ended(double seconds);

  // Must be called if a save has failed; its time does not count.
  void failed() { reported = false; }

private:
  std::optional<Found> judge(double seconds) const;

  std::deque<double> latest; // seconds
  bool reported = false;     // goesOn() has returned the present save
};

} // namespace lmc
