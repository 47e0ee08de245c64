// Replaces the CUDA device in a build without CUDA's headers: opening it is an error.
#include "runtime/device/Device.h"
#include "runtime/device/GpuMachine.h"

#include <nlohmann/json.hpp>

namespace lmc {

Result<std::unique_ptr<Device>> cudaDevice(const DeviceOptions &) {
  return Error{"the plan is for a GPU, and this lmc-run was built without CUDA's headers (cuda.h, "
               "cublasLt.h); build it where CUDA is installed, or compile the plan with "
               "--target=cpu"};
}

nlohmann::ordered_json describeGpus() {
  return {{"devices", nlohmann::ordered_json::array()},
          {"libraries", nlohmann::ordered_json::object()},
          {"problems", {"this lmc-run was built without CUDA's headers (cuda.h, cublasLt.h)"}}};
}

} // namespace lmc
