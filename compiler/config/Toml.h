// toml++, as every file here that parses TOML must include it: without exceptions.
//
// toml++ 3.3 asserts things of the text that a faulty file does not keep ("[" at the
// end of a line) and reports the same mistake properly right after. So its assertions
// are off, and without NDEBUG they are not turned into promises to the optimizer. To
// be included last.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
