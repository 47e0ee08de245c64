// The blocks of moments in 8 bits, as plans have them.
#pragma once

#include <cstdint>

namespace lmc {

// Elements that share a scale.
inline constexpr int64_t kMomentBlock = 256;

} // namespace lmc
