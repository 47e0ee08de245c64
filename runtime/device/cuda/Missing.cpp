// The CUDA device of a build without CUDA's headers.
#include "runtime/device/Device.h"

namespace lmc {

Result<std::unique_ptr<Device>> cudaDevice(const DeviceOptions &) {
  return Error{"the plan is for a GPU, and this lmc-run was built without CUDA's headers (cuda.h, "
               "cublasLt.h); build it where CUDA is installed, or compile the plan with "
               "--target=cpu"};
}

} // namespace lmc
