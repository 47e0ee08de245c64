// How the host driver refuses a call.
//
// Functions below the entry points throw a Failure; the entry point (Driver.h) catches it and
// returns its code. The stand-in is test code behind a C interface, so that an exception is the
// short way out of it.
#pragma once

#include <cuda.h>
#include <fmt/format.h>

#include <string>

// Marks what the stand-in for cuBLASLt, a library of its own, uses of the stand-in for libcuda.
#define LMC_HOST_EXPORT __attribute__((visibility("default")))

namespace lmc::hostdriver {

struct LMC_HOST_EXPORT Failure {
  CUresult code;
  // Empty for an error that a correct program may meet too (not ready, out of memory). Otherwise
  // the call broke a rule, and the text says which: the report lists it, and stderr shows it.
  std::string text;
};

[[noreturn]] inline void refuse(CUresult code) { throw Failure{code, ""}; }

template <typename... Args>
[[noreturn]] void broken(CUresult code, fmt::format_string<Args...> format, Args &&...args) {
  throw Failure{code, fmt::format(format, std::forward<Args>(args)...)};
}

// The code of a call that breaks a rule of this stand-in for which CUDA has no code: a race, a
// launch that the plan does not have.
inline constexpr CUresult kRuleBroken = CUDA_ERROR_NOT_PERMITTED;

} // namespace lmc::hostdriver
