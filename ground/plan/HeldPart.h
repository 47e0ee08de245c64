// Which elements of a variable's tensor a rank has.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Elements [first, first + count) of a tensor. Element `first` is element `at` of the variable's
// slice, and the others follow it. A row of the tensor has `columns` elements, and two rows begin
// `pitch` elements of the slice apart; if `pitch` is 0, all elements are adjacent.
struct HeldPart {
  uint64_t first = 0, count = 0, at = 0;
  uint64_t columns = 0, pitch = 0;

  // Returns elements [from, from + number) of the tensor. The part has all of them, and has `from`
  // even if `number` is 0.
  HeldPart part(uint64_t from, uint64_t number) const;
  // Returns the longest piece at the beginning of the part whose elements are adjacent.
  HeldPart run() const;
  // Returns the part as one piece of adjacent elements of the slice, from its first to its last
  // element, with the padding between rows.
  HeldPart withPadding() const;
  // Returns the part with `width` bytes in the place of each element.
  HeldPart inBytes(uint64_t width) const;
};

// Returns the part that the rank at position `position` along the axis Shard has. Every rank has
// all of a variable that is not divided. `variable` is one of `plan`, which is verified.
HeldPart heldPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t position);

// Returns the part that one rank writes where several have the same elements: the part that it has,
// divided about evenly among them. Over all ranks, these parts cover the tensor once. They end at
// moment blocks, so a rank that writes 8-bit moments also writes their scales.
HeldPart writtenPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t rank);

// Returns the shape of a variable's tensor, which no padding and no division change.
std::vector<uint64_t> shapeOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc
