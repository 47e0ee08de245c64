// Includes the TOML parser toml++ without exceptions. Every file of the compiler that parses TOML
// includes this header, and includes it last.
//
// toml++ 3.3 contains assertions that fail for some faulty files ("[" at the end of a line),
// although the parser then reports the mistake properly. Therefore this header turns the assertions
// off. It undefines NDEBUG, because with NDEBUG toml++ makes them assumptions of the optimizer.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
