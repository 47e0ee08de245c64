// Loads the kernels of a plan on a GPU, and compares them with their descriptions in the plan.
#pragma once

#include "runtime/device/cuda/Gpu.h"

#include <array>
#include <string>
#include <vector>

namespace lmc::cuda {

struct Kernel {
  CUfunction function = nullptr;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  uint32_t threads = 0, sharedBytes = 0;
  std::string name;
  uint64_t code = 0; // hash (XXH64) of the code of the kernel's module
};

class Kernels {
public:
  // Loads every module of the plan. The GPU must be current. Errors: a module has no code or does
  // not load, or a kernel cannot be launched with the threads and the shared memory of the plan.
  Result<void> load(const Driver &driver, const PlanFile &file);

  const std::vector<Kernel> &all() const { return kernels; }
  // One line for each property of a kernel, such as the number of its registers, that differs
  // between the plan and the driver.
  const std::vector<std::string> &differences() const { return found; }

  // Enqueues a launch. `arguments` are addresses of device memory.
  static Result<void> launch(const Driver &driver, const Kernel &kernel,
                             const std::vector<CUdeviceptr> &arguments, CUstream stream);

private:
  Result<void> check(const Driver &driver, const plan::Kernel &planned, const Kernel &kernel);

  std::vector<Module> modules;
  std::vector<Kernel> kernels;
  std::vector<std::string> found;
};

} // namespace lmc::cuda
