// A module of a plan is a shared object that is loaded from memory, without a file on disk.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc::cpu {

// The entry function of a kernel. It computes the work items [begin, end) of a launch.
using KernelEntry = void (*)(void *const *args, int64_t begin, int64_t end);

class CpuModule {
public:
  // Error: the module is for another type of device, or needs a CPU feature that this machine
  // lacks. This is found before any code of the module runs.
  static Result<std::unique_ptr<CpuModule>> load(const plan::Module &module);
  ~CpuModule();
  CpuModule(const CpuModule &) = delete;
  CpuModule &operator=(const CpuModule &) = delete;

  Result<KernelEntry> find(const std::string &entry) const;

private:
  CpuModule(void *handle, int file) : handle(handle), file(file) {}
  void *handle;
  int file; // descriptor of a file in memory, which has the module's image
};

} // namespace lmc::cpu
