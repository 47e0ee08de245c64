// Sets the processor's rounding mode, because a library may change it for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Makes the calling thread, and the threads that it starts, round to nearest and compute with
// subnormal numbers, as every program does at its start. Libraries linked with -ffast-math change
// this when they are loaded, and others change it for their own threads. A run would then get
// different results.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
