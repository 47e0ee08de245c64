// The bytes that slices cover. A slice is a run of bytes, or several equal runs that begin `pitch`
// bytes apart (columns of a wider tensor). Slices of one buffer overlap.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Returns the bytes from the first byte of the slice to the end of its last row.
uint64_t extentOf(const plan::Slice &slice);

// Returns the offset after the last byte.
uint64_t endOf(const plan::Slice &slice);

// Returns the number of bytes that at least one of `slices` covers; all must lie in one arena. The
// result is exact if the slices have at most one pitch, as those of a buffer do. With several
// pitches it may be too large.
uint64_t unionBytes(const std::vector<const plan::Slice *> &slices);

// Returns true if some byte belongs to both slices. Exact for slices without a pitch and for slices
// of one pitch; otherwise true if the extents overlap.
bool overlap(const plan::Slice &a, const plan::Slice &b);

// A copy of `rows` runs of `bytes` bytes each. A run starts dPitch (xPitch) bytes behind the start
// of the run before it in the target (the source).
struct CopyRuns {
  uint64_t bytes = 0, rows = 1, dPitch = 0, xPitch = 0;
};

// Returns the runs of the command that copies slice `x` to slice `d` (plan.fbs, Copy). If both have
// a pitch, they must have equally many rows.
CopyRuns copyRuns(const plan::Slice &d, const plan::Slice &x);

} // namespace lmc
