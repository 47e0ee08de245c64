// What code generation knows of architectures agrees with what the cost model knows of devices, and
// with what NVIDIA says of occupancy.
#include "compiler/targets/cuda/CudaArch.h"
#include "compiler/cost/DeviceSpec.h"

#include <gtest/gtest.h>

#if __has_include(<cuda_occupancy.h>) // where a CUDA toolkit's headers are
#include "test/compiler/targets/cuda/NvidiaOccupancy.h"
#endif

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

#ifdef LMC_HAS_CUDA_OCCUPANCY
TEST(CudaArch, OneArchitectureHasWarpgroups) {
  for (const CudaArch &arch : cudaArchs())
    EXPECT_EQ(arch.hasWarpgroups(), arch.name == "sm_90a") << arch.name.str();
}

TEST(CudaArch, ResidentBlocksAreThoseThatNvidiasHeaderComputes) {
  for (const CudaArch &arch : cudaArchs())
    for (unsigned threads = 32; threads <= 1024; threads += 32)
      for (unsigned registers = 16; registers <= 255; ++registers)
        for (unsigned shared : {0u, 100u, 8192u, 50176u, arch.sharedBytesPerBlock})
          ASSERT_EQ(residentBlocks(arch, threads, registers, shared),
                    lmc::test::nvidiaOccupancy({arch.version, arch.threadsPerSm,
                                                arch.sharedBytesPerSm, arch.sharedBytesPerBlock},
                                               threads, registers, shared))
              << arch.name.str() << ": " << threads << " threads, " << registers << " registers, "
              << shared << " bytes";
}
#endif
