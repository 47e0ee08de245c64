// Watches for checkpoints whose writing takes longer than usual, for example on a shared disk.
#pragma once

#include "runtime/watch/Watch.h"

#include <cstddef>
#include <deque>
#include <optional>

namespace lmc {

// A save is slow if it takes at least kRatio times the usual time, and kExcess seconds longer. The
// usual time is the median of the last kWindow saves. The first kLeast saves are not judged. Each
// slow save is reported once.
class SlowSaves final : public Watch {
public:
  static constexpr size_t kWindow = 10, kLeast = 2; // numbers of saves
  static constexpr double kRatio = 2, kExcess = 1;  // kExcess: seconds

  // `progress` must outlive the watch.
  explicit SlowSaves(const CheckpointState &progress) : progress(progress) {}

  WatchFindings writing(uint64_t step, double seconds) override;
  WatchFindings saved(uint64_t step, std::optional<double> seconds) override;

private:
  WatchFindings judge(uint64_t step, const char *how, double seconds) const;

  const CheckpointState &progress;
  std::deque<double> latest; // seconds
  bool reported = false;     // true once writing() has reported the present save
};

} // namespace lmc
