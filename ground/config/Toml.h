// Includes the TOML parser toml++ without exceptions. A source must include this header last.
//
// toml++ 3.3 asserts conditions that wrong input breaks ("[" at the end of a line), although its
// parser then reports the mistake. This header turns the assertions off. It undefines NDEBUG,
// because with NDEBUG toml++ lets the optimizer assume that the conditions hold.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
