// Arguments of kernels.
#pragma once

#include "test/simt/SimtKernel.h"

#include <cstring>
#include <vector>

namespace lmc::simt {

// Memory of an argument that is aligned as on a device.
struct AlignedBytes {
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  AlignedBytes(const void *data, size_t size) : size(size), lines((size + 63) / 64) {
    std::memcpy(static_cast<void *>(lines.data()), data, size);
  }
  void to(void *data) const { std::memcpy(data, lines.data(), size); }
  size_t size;
  std::vector<Line> lines;
};

} // namespace lmc::simt
