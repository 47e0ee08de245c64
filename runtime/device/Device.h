// The device interface: what a plan needs of the machine it runs on.
//
// One implementation per kind of device: runtime/device/cpu, and for tests runtime/device/simt,
// which runs CUDA kernels on the host. test/runtime/device/ConformanceTest.cpp runs on every one
// of them. Memory is addressed as (arena, byte offset), as in the plan.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc {

struct DeviceInfo {
  std::string name;         // "AMD EPYC, 2 threads"
  int threads = 1;          // CPU only
  double peakFlops = 0;     // dense, in the plan's compute dtype, FLOP/s
  std::string peakSource;   // how peakFlops is known
  uint64_t memoryBytes = 0;
};

// A function of the plan, bound to arenas and ready to be submitted many times.
class Executable {
public:
  virtual ~Executable() = default;
};

class Device {
public:
  virtual ~Device() = default;

  virtual DeviceInfo info(plan::DType computeDType) const = 0;

  // Allocates all arenas and loads all modules of `plan`, once; the plan must
  // outlive the device. Errors: not enough memory (with the breakdown of the
  // plan), a module that this machine cannot run.
  virtual Result<void> load(const PlanFile &plan) = 0;

  // Bytes that the arenas really occupy.
  virtual uint64_t allocatedBytes() const = 0;

  // Resolves every operand of function `index` once.
  virtual Result<std::unique_ptr<Executable>> record(int index) = 0;

  // Enqueues one run; runs happen in the order they were submitted.
  virtual Result<void> submit(Executable &executable) = 0;

  // Waits for everything that was submitted. Reports an asynchronous failure.
  virtual Result<void> synchronize() = 0;

  // Ordered after all submissions so far; both wait until the copy is done.
  virtual Result<void> copyIn(int slice, const void *source, uint64_t bytes,
                              uint64_t offset = 0) = 0;
  virtual Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset = 0) = 0;
};

// Opens the device that `plan` was compiled for. `threads` 0 means OMP_NUM_THREADS
// or, without it, every CPU this process may run on.
Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, int threads = 0);

} // namespace lmc
