// Finds the place in a kernel's source that an instruction comes from.
#pragma once

#include <string>

namespace lmc::simt {

// Returns "line 12: `float v = loadOne(x + i);`" for the address of an instruction of a loaded
// kernel. For code of the device library deeper than vector_io.cuh, the place there is added. The
// debug lines of the object are read by addr2line; without them the result is "an unknown place".
std::string sourcePlace(const void *instruction);

// Returns the same for a known line.
std::string sourceLine(const std::string &file, int line);

} // namespace lmc::simt
