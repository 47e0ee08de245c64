// Replaces NCCL in a build without its header.
#include "runtime/device/cuda/Collectives.h"

namespace lmc::cuda {

Result<std::unique_ptr<Collectives>> openNccl(const Driver &, const Gpu &, World &,
                                              const std::vector<plan::Axis> &,
                                              std::function<void()>) {
  return machineError(
      "the plan is for several GPUs, and this lmc-run was built without NCCL's header (nccl.h); "
      "build it where NCCL is installed, or give --collectives=host, which is slower");
}

Result<LibraryFile> findNccl() {
  return machineError("this lmc-run was built without NCCL's header (nccl.h)");
}

} // namespace lmc::cuda
