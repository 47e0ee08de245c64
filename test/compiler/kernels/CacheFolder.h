// A folder for a KernelCache, removed with the object.
#pragma once

#include "test/runtime/checkpoint/TestFolder.h"

#include <vector>

namespace lmc::test {

class CacheFolder : public TestFolder {
public:
  // Returns the files of entries, without those that are half written.
  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> found;
    for (const auto &file : std::filesystem::directory_iterator(path))
      if (file.path().filename().string().starts_with("llvmcache-lmc-"))
        found.push_back(file.path());
    return found;
  }
};

} // namespace lmc::test
