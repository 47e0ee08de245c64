// The occupancy that NVIDIA's header computes, as an oracle for what lmc and its tests compute.
#pragma once

#include <cuda_occupancy.h>

#define LMC_HAS_CUDA_OCCUPANCY

namespace lmc::test {

// The limits of a GPU. `version` is its compute capability: 90 for 9.0. Shared memory is in bytes.
struct NvidiaLimits {
  unsigned version, threadsPerSm, sharedPerSm, sharedPerBlock;
};

// Returns how many blocks a multiprocessor runs at the same time. `registers` is per thread;
// `shared` is per block in bytes, all of it dynamic. Returns -1 for a GPU that the header does not
// know.
inline int nvidiaOccupancy(const NvidiaLimits &limits, unsigned threads, unsigned registers,
                           unsigned shared) {
  cudaOccDeviceProp device;
  device.computeMajor = int(limits.version / 10);
  device.computeMinor = int(limits.version % 10);
  device.maxThreadsPerBlock = 1024;
  device.maxThreadsPerMultiprocessor = int(limits.threadsPerSm);
  device.regsPerBlock = device.regsPerMultiprocessor = 65536;
  device.warpSize = 32;
  device.sharedMemPerBlock = 48 << 10;
  device.sharedMemPerMultiprocessor = limits.sharedPerSm;
  device.sharedMemPerBlockOptin = limits.sharedPerBlock;
  device.reservedSharedMemPerBlock = 1024;
  device.numSms = 1; // unused
  cudaOccFuncAttributes function;
  function.maxThreadsPerBlock = 1024;
  function.numRegs = int(registers);
  function.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
  function.maxDynamicSharedSizeBytes = shared;
  function.numBlockBarriers = 1;
  cudaOccDeviceState state;
  state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
  cudaOccResult result;
  if (cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &function, &state, int(threads),
                                              shared) != CUDA_OCC_SUCCESS)
    return -1;
  return result.activeBlocksPerMultiprocessor;
}

} // namespace lmc::test
