// Which elements of a variable's tensor a rank has.
#pragma once

#include "plan_generated.h"

#include <cstdint>
#include <vector>

namespace lmc {

// Elements [first, first + count) of a tensor, which are elements [at, at + count) of the
// variable's slice.
struct HeldPart {
  uint64_t first = 0, count = 0, at = 0;
};

// Returns the part that the rank at position `position` along the axis Shard has. Every rank has
// all of a variable that is not divided. `variable` is one of `plan`, which is verified.
HeldPart heldPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t position);

// Returns the part that one rank writes where several have the same elements: the part that it has,
// divided evenly among them. Over all ranks, these parts cover the tensor once.
HeldPart writtenPart(const plan::Plan &plan, const plan::Variable &variable, uint64_t rank);

// Returns the shape of a variable's tensor, which no padding and no division change.
std::vector<uint64_t> shapeOf(const plan::Plan &plan, const plan::Variable &variable);

} // namespace lmc
