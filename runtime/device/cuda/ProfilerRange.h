// Names parts of the host's work for NVIDIA's profilers (Nsight Systems shows them with the kernels
// that were enqueued meanwhile). Without a profiler a range costs a few nanoseconds.
//
// NVTX is a header of the CUDA toolkit; a build whose toolkit lacks the header has no ranges.
#pragma once

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define LMC_HAS_NVTX 1
#endif

namespace lmc::cuda {

// A range of the calling thread, which ends with the object.
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
