// Finds the files that belong to the running program.
#pragma once

#include <filesystem>
#include <string>

namespace lmc {

// Returns the folder of the running program's file; symbolic links to the program are followed.
std::filesystem::path programFolder();

// Returns the path of a file that another Python package has installed, if pip installed this
// program, and "" otherwise. `name` is relative to the folder of all packages (site-packages):
// "nvidia/cu13/lib/libnvrtc.so.13". The file need not exist.
std::string fileOfPythonPackage(const std::string &name);

} // namespace lmc
