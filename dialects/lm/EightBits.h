// Questions about casts to 8-bit floats.
#pragma once

#include "dialects/lm/Lm.h"

namespace lmc::lm {

// Returns true if the scale of a cast comes from the largest value of the tensor itself.
bool hasOwnScale(QuantizeOp cast);

} // namespace lmc::lm
