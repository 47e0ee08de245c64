#pragma once

#include <cstdint>

namespace lmc::cpu {

// How elements lie in memory. Arithmetic is f32, and f64 for F64.
enum class Storage : uint8_t { F32, BF16, F64 };

} // namespace lmc::cpu
