// The moment blocks of 8-bit moments in plans.
#pragma once

#include <cstdint>

namespace lmc {

// The elements that share one scale.
inline constexpr int64_t kMomentBlock = 256;

} // namespace lmc
