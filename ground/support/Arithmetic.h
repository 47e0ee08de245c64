// Sets the processor's rounding mode, because a library may change it for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Makes the calling thread and the threads that it starts round to nearest and keep subnormal
// numbers, as is the default. A library that was linked with -ffast-math makes the processor
// replace subnormal numbers by zeros, and so changes the results of a run.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
