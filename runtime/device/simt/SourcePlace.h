// Where in a kernel's source an instruction comes from.
#pragma once

#include <string>

namespace lmc::simt {

// "line 12: `float v = loadOne(x + i);`" for the address of an instruction of a loaded kernel,
// with the place inside the device library where it is deeper than vector_io.cuh. Needs the
// debug lines of the object, which are read by addr2line; "an unknown place" without them.
std::string sourcePlace(const void *instruction);

// The same for a line that is known.
std::string sourceLine(const std::string &file, int line);

} // namespace lmc::simt
