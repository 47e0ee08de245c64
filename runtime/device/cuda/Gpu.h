// One GPU of this machine.
#pragma once

#include "ground/plan/PlanFile.h"
#include "runtime/device/cuda/Driver.h"

#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace lmc::cuda {

class Gpu {
public:
  // Opens GPU `index` of those that CUDA_VISIBLE_DEVICES names. Error: there is no such GPU.
  static Result<Gpu> open(const Driver &driver, int index);

  // Makes the GPU's context current in this thread. Every thread that calls the driver needs it.
  Result<void> use() const;

  // Returns an error if code for `architecture` ("sm_90a") does not run on the GPU.
  Result<void> requireArchitecture(const std::string &architecture) const;

  // Returns an error if fewer than `bytes` bytes are free. The message names the processes that
  // have memory of the GPU, if NVIDIA's management library is installed. `breakdown` says for what
  // the bytes are needed: "state 1.50 GiB, workspace 0.25 GiB".
  Result<void> requireFree(uint64_t bytes, const std::string &breakdown) const;
  Result<uint64_t> freeBytes() const;

  std::string name;  // "NVIDIA H100 80GB HBM3"
  std::string uuid;  // "GPU-8f6e..."
  int multiprocessors = 0;
  int major = 0, minor = 0; // compute capability
  uint64_t memoryBytes = 0;

private:
  struct Release {
    const Driver *driver;
    CUdevice device;
    void operator()(CUcontext) const { (void)driver->cuDevicePrimaryCtxRelease(device); }
  };

  Gpu(const Driver &driver, CUdevice device)
      : driver(&driver), context(nullptr, Release{&driver, device}) {}

  const Driver *driver;
  std::unique_ptr<std::remove_pointer_t<CUcontext>, Release> context;
};

} // namespace lmc::cuda
