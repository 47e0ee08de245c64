#include "ground/support/Places.h"

namespace lmc {

std::filesystem::path programFolder() {
  std::error_code failed;
  return std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
}

// If pip has installed the Python package `lmc`, its folder `bin` has this program.
std::string fileOfPythonPackage(const std::string &name) {
  const std::filesystem::path package = programFolder().parent_path();
  std::error_code failed;
  if (!std::filesystem::exists(package / "__init__.py", failed))
    return "";
  return (package.parent_path() / name).lexically_normal().string();
}

} // namespace lmc
