// The outcome of check() and verify() as text.
#pragma once

#include "ground/support/Result.h"

#include <string>

namespace lmc {

// Returns the fault that a problem's check() or a solution's verify() found, or "".
inline std::string faultOf(const Result<void> &outcome) {
  return outcome ? "" : outcome.error().message;
}

} // namespace lmc
