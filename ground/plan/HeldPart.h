// Computes which elements of a variable's tensor a rank has.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Elements [first, first + count) of a tensor. Element `first` is element number `at` of the
// variable's slice. Rows have `columns` elements, and begin `pitch` elements apart in the slice. If
// the pitch is 0, all elements are adjacent.
struct HeldPart {
  uint64_t first = 0, count = 0, at = 0;
  uint64_t columns = 0, pitch = 0;

  // Returns the part with elements [from, from + number) of the tensor. This part must contain
  // these elements, and must contain element `from` even if `number` is 0.
  HeldPart part(uint64_t from, uint64_t number) const;
  // Returns the longest range of adjacent elements at the beginning of the part.
  HeldPart run() const;
  // Returns the part's ranges of adjacent elements. With a pitch, each row is one range.
  std::vector<HeldPart> runs() const;
  // Returns the part as one range of the slice, from the part's first element to its last. The
  // range includes the padding between rows.
  HeldPart withPadding() const;
  // Returns the part in bytes: each element counts as `width` bytes.
  HeldPart inBytes(uint64_t width) const;
};

// Returns the part that the rank at `position` along the axis Shard has. If the variable is not
// divided among ranks, this part is the whole tensor. `plan` must be verified.
HeldPart heldPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t position);

// Returns the part that a rank writes to a checkpoint. Exactly one rank writes each element. Ranks
// that have the same elements divide them about equally. Parts end at moment blocks, so a rank that
// writes 8-bit moments also writes their scales.
HeldPart writtenPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t rank);

// Returns the shape of a variable's whole tensor, without padding.
std::vector<uint64_t> shapeOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc
