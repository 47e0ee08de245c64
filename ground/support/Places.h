// Finds the files that belong to the running program.
#pragma once

#include <filesystem>
#include <string>

namespace lmc {

// Returns the folder of the running program's file, after following symbolic links.
std::filesystem::path programFolder();

// If pip has installed this program, returns the path of a file of another Python package, which
// need not exist; else "". `name` is relative to the folder of all packages (site-packages):
// "nvidia/cu13/lib/libnvrtc.so.13".
std::string fileOfPythonPackage(const std::string &name);

} // namespace lmc
