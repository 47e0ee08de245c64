// Includes the TOML parser toml++ without exceptions. Every file of the compiler that parses TOML
// includes this header, and includes it last.
//
// toml++ 3.3 contains assertions that fail for some faulty files ("[" at the end of a line),
// although the parser reports the mistake properly afterwards. The assertions are therefore turned
// off. NDEBUG is undefined so that toml++ does not turn them into assumptions of the optimizer.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
