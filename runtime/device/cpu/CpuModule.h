// A module of the plan, loaded as a shared object without a file on disk.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc::cpu {

// Computes work items [begin, end).
using KernelEntry = void (*)(void *const *args, int64_t begin, int64_t end);

class CpuModule {
public:
  // Refuses an image for another kind of device, or one that needs a feature
  // this machine lacks, before any of its code can run.
  static Result<std::unique_ptr<CpuModule>> load(const plan::Module &module);
  ~CpuModule();
  CpuModule(const CpuModule &) = delete;
  CpuModule &operator=(const CpuModule &) = delete;

  Result<KernelEntry> find(const std::string &entry) const;

private:
  explicit CpuModule(void *handle) : handle(handle) {}
  void *handle;
};

} // namespace lmc::cpu
