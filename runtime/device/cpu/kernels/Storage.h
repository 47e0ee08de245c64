#pragma once

#include <cstdint>

namespace lmc::cpu {

// The type of elements in memory. Arithmetic is in f64 for F64, and in f32 for F32 and BF16.
enum class Storage : uint8_t { F32, BF16, F64 };

} // namespace lmc::cpu
