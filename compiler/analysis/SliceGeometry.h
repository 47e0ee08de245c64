// Which bytes slices cover. A slice is a run of bytes, or equal runs `pitch` apart
// (columns of a wider tensor); slices of one buffer overlap.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// One past the last byte.
uint64_t endOf(const plan::Slice &slice);

// Bytes of the arena that at least one of `slices` covers; all of one arena. Exact for
// slices of up to one pitch (a buffer has one row length); of several, no less.
uint64_t unionBytes(const std::vector<const plan::Slice *> &slices);

// Whether some byte belongs to both.
bool overlap(const plan::Slice &a, const plan::Slice &b);

} // namespace lmc
