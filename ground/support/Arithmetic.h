// Sets the processor's rounding mode, because a library may change it for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Makes the calling thread, and the threads that it starts, round to nearest and keep subnormal
// numbers, which is the default. Loading a library that was linked with -ffast-math turns
// subnormal numbers into zeros, which would change the results of a run.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
