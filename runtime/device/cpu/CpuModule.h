// A module of the plan: a shared object that is loaded from memory, without a file on disk.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc::cpu {

// The function of a kernel. It computes the work items [begin, end).
using KernelEntry = void (*)(void *const *args, int64_t begin, int64_t end);

class CpuModule {
public:
  // Loads the image of a module. Before any of its code can run, fails for an image of another kind
  // of device and for one that needs a feature which this machine lacks.
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
