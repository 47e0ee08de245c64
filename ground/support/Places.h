// Finds files of the running program and of other Python packages.
#pragma once

#include <filesystem>
#include <string>
#include <system_error>

namespace lmc {

// Returns the folder of the running program's file, after following symbolic links.
inline std::filesystem::path programFolder() {
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
}

// Returns the path of the file `name` of another Python package; the file need not exist. `name` is
// relative to the folder of all packages (site-packages): "nvidia/cu13/lib/libnvrtc.so.13". Returns
// "" if pip has not installed this program.
inline std::string fileOfPythonPackage(const std::string &name) {
  // The folder of the Python package `lmc`. This program is in the folder `bin` below it.
  const std::filesystem::path package = programFolder().parent_path();
  std::error_code failed;
  if (!std::filesystem::exists(package / "__init__.py", failed))
    return "";
  return (package.parent_path() / name).lexically_normal().string();
}

} // namespace lmc
