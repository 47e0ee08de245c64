// Conversions between the float types of a plan.
#pragma once

#include "plan_generated.h"

#include <cstdint>

namespace lmc {

// bf16 is the upper half of an f32. toBFloat16 rounds to nearest, ties to even; NaN stays NaN.
uint16_t toBFloat16(float value);
float fromBFloat16(uint16_t bits);

// Converts `count` elements, rounding to nearest even if the target is narrower. f64 to bf16 is
// rounded once, not through f32. Returns false if either type is no float.
bool convertFloats(plan::DType from, const void *source, plan::DType to, void *target,
                   uint64_t count);

} // namespace lmc
