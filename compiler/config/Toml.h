// Includes toml++ without exceptions; every file here that parses TOML includes it through this
// header.
//
// toml++ 3.3 contains assertions that a faulty file can violate ("[" at the end of a line),
// although the parser reports the same mistake properly afterwards. The assertions are therefore
// turned off, and without NDEBUG they are not turned into promises to the optimizer either. This
// header must be included last.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
