// How the processor rounds, which a library may change for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Lets the calling thread, and those that it starts, round to nearest and compute with subnormal
// numbers, as every program begins. Some libraries change that when they are loaded (those linked
// with -ffast-math), others for their own threads; a run would then have other bits.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
