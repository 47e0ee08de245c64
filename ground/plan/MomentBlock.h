// Moment blocks: the blocks of 8-bit moments that share a scale.
#pragma once

#include <cstdint>

namespace lmc {

// The number of consecutive elements of a moment that share one f32 scale.
inline constexpr int64_t kMomentBlock = 256;

} // namespace lmc
