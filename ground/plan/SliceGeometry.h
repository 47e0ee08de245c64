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

// Returns the number of bytes that at least one of `slices` covers. All slices must lie in one
// arena. If their pitches differ, the number may be too large.
uint64_t unionBytes(const std::vector<const plan::Slice *> &slices);

// Returns true if the slices have a byte in common. If their pitches differ, compares only their
// extents. An extent goes from the first byte of a slice to its last.
bool overlap(const plan::Slice &a, const plan::Slice &b);

// A copy of `rows` runs of `bytes` bytes each. Runs begin dPitch bytes apart in the target and
// xPitch bytes apart in the source.
struct CopyRuns {
  uint64_t bytes = 0, rows = 1, dPitch = 0, xPitch = 0;
};

// Returns the runs for copying slice `x` to slice `d` (plan.fbs, Copy). If both slices have a
// pitch, they must have the same number of rows.
CopyRuns copyRuns(const plan::Slice &d, const plan::Slice &x);

} // namespace lmc
