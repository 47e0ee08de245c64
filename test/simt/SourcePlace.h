// Finds the place in a kernel's source that an instruction comes from.
#pragma once

#include <string>

namespace lmc::simt {

// Returns "line 12: `float v = loadOne(x + i);`" for the address of an instruction of a loaded
// kernel. If the instruction is in a function of a device header (except platform.cuh and
// vector_io.cuh) that this line calls, its file and line are added. addr2line reads the debug
// information of the object; without it the result is "an unknown place".
std::string sourcePlace(const void *instruction);

// Returns the text "line 12: `...`" for a known line of a file.
std::string sourceLine(const std::string &file, int line);

} // namespace lmc::simt
