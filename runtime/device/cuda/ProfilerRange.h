// Names parts of the host's work for NVIDIA's profilers. Nsight Systems shows each range with the
// kernels that were enqueued during it. A build without the header of NVTX has no ranges.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LMC_HAS_NVTX 1
#endif

namespace lmc::cuda {

class ProfilerRange {
public:
#ifdef LMC_HAS_NVTX
  explicit ProfilerRange(const char *name) { nvtxRangePushA(name); }
  ~ProfilerRange() { nvtxRangePop(); }
#else
  explicit ProfilerRange(const char *) {}
#endif
  ProfilerRange(const ProfilerRange &) = delete;
};

} // namespace lmc::cuda
