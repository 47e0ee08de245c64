// Includes the TOML parser toml++ without exceptions. A source must include this header last.
//
// Some assertions of toml++ 3.3 fail for faulty files ("[" at the end of a line), although the
// parser then reports the mistake. This header turns the assertions off. It undefines NDEBUG,
// because with NDEBUG toml++ makes them assumptions of the optimizer.
#pragma once

#define TOML_EXCEPTIONS 0
#undef NDEBUG
#define TOML_ASSERT(expression) static_assert(true)
#include <toml++/toml.h>
