// Arguments of kernels that tests of the templates of mixtures of experts pass.
#pragma once

#include "test/runtime/device/cpu/Values.h"
#include "test/simt/SimtKernel.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace lmc::simt {

// An argument of a kernel: memory that is aligned as on a device.
struct KernelArgument {
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  KernelArgument(const void *data, size_t size, Access access)
      : size(size), lines((size + 63) / 64), access(access) {
    std::memcpy(static_cast<void *>(lines.data()), data, size);
  }
  KernelArgument(const cpu::test::Values &values, Access access)
      : KernelArgument(values.bytes.data(), values.bytes.size(), access) {}
  KernelArgument(const std::vector<int32_t> &values, Access access)
      : KernelArgument(values.data(), values.size() * 4, access) {}
  void to(void *data) const { std::memcpy(data, lines.data(), size); }
  void to(cpu::test::Values &values) const {
    std::memcpy(values.data(), lines.data(), values.bytes.size());
  }
  void to(std::vector<int32_t> &values) const {
    std::memcpy(values.data(), lines.data(), values.size() * 4);
  }
  size_t size;
  std::vector<Line> lines;
  Access access;
};

} // namespace lmc::simt
