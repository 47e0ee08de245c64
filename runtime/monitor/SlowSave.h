// Finds checkpoints whose writing takes longer than usual, as on a disk that others use.
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

  // Is given the seconds for which a save has been going on. Returns a slow save once.
  std::optional<Found> goesOn(double seconds);

  // Is given the seconds that a save took. Returns a slow save unless goesOn() did. Nothing is slow
  // before kLeast saves are known.
  std::optional<Found> ended(double seconds);

  // A save has failed, so that its time says nothing.
  void failed() { told = false; }

private:
  std::optional<Found> judge(double seconds) const;

  std::deque<double> latest; // seconds
  bool told = false;         // goesOn() has returned the save that goes on
};

} // namespace lmc
