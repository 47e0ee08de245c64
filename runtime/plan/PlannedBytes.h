// The memory that a plan needs on its device.
#pragma once

#include "plan_generated.h"

#include <cstdint>

namespace lmc {

// Returns the bytes of all arenas together, or UINT64_MAX if the sum does not fit in 64 bits.
inline uint64_t plannedBytes(const plan::Plan &plan) {
  uint64_t bytes = 0;
  for (const plan::Arena *arena : *plan.arenas())
    bytes = arena->bytes() > UINT64_MAX - bytes ? UINT64_MAX : bytes + arena->bytes();
  return bytes;
}

} // namespace lmc
