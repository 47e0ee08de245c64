// The bytes that slices cover. A slice is a run of bytes, or several equally long runs that begin
// `pitch` bytes apart (some columns of a wider tensor). Slices of one buffer may overlap.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Returns the number of bytes from the slice's first byte to the end of its last row.
uint64_t extentOf(const plan::Slice &slice);

// Returns the offset in the arena of the end of the slice's last row.
uint64_t endOf(const plan::Slice &slice);

// Returns the number of bytes that at least one of `slices` covers. All must lie in one arena. With
// several pitches, the result may be too large.
uint64_t unionBytes(const std::vector<const plan::Slice *> &slices);

// Returns true if the slices have a byte in common. For slices with different pitches, returns true
// if their extents overlap (from the first to the last byte of each).
bool overlap(const plan::Slice &a, const plan::Slice &b);

// A copy of `rows` runs of `bytes` bytes each. Runs begin dPitch bytes apart in the target and
// xPitch bytes apart in the source.
struct CopyRuns {
  uint64_t bytes = 0, rows = 1, dPitch = 0, xPitch = 0;
};

// Returns the runs of the command that copies slice `x` to slice `d` (plan.fbs, Copy). If both have
// a pitch, they must have the same number of rows.
CopyRuns copyRuns(const plan::Slice &d, const plan::Slice &x);

} // namespace lmc
