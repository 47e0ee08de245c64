// Sets how the processor rounds, because a library may change it for the whole program.
#pragma once

#include <cfenv>

namespace lmc {

// Makes the calling thread, and the threads that it starts, round to nearest and compute with
// subnormal numbers, as every program does at its start. Some libraries change that when they are
// loaded (those linked with -ffast-math), others for their own threads; a run's results would then
// differ.
inline void useDefaultArithmetic() { std::fesetenv(FE_DFL_ENV); }

} // namespace lmc
