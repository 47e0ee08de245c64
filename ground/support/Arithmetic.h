// Sets the processor's rounding mode, because a library may change it for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Makes the calling thread, and the threads that it starts, round to nearest and compute with
// subnormal numbers, as every program does at its start. A library that is linked with -ffast-math
// changes this when it is loaded, so that a run would get different results.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
