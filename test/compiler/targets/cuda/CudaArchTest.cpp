// What code generation knows of architectures agrees with what the cost model knows of devices.
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/cost/DeviceSpec.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::codegen;

TEST(CudaArch, DeviceSpecsHaveAsManySms) {
  int devices = 0;
  for (const std::string &name : cost::deviceSpecNames()) {
    cost::DeviceSpec spec = *cost::loadDeviceSpec(name);
    const CudaArch *arch = findCudaArch(spec.arch);
    if (!arch)
      continue;
    ++devices;
    EXPECT_EQ(spec.gemm[size_t(DataType::BF16)].units, arch->chip.sms) << name;
  }
  EXPECT_EQ(devices, 4);
}

// FLOPs per clock are peak FLOP/s over the SMs and their clock, here at 1.41 and 1.83 GHz.
TEST(CudaArch, TensorCoresReachNoMoreThanTheDeviceSpecsPeak) {
  for (auto [name, clock] : {std::pair("a100-80gb", 1.41e9), std::pair("h100-sxm", 1.83e9)}) {
    cost::DeviceSpec spec = *cost::loadDeviceSpec(name);
    const CudaChip &chip = findCudaArch(spec.arch)->chip;
    EXPECT_LE(chip.sms * chip.tensorFlops * clock, 1.01 * spec.peakOf(DataType::BF16)) << name;
  }
}
