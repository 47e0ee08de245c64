// The device interface: the operations of a machine that a plan needs.
//
// There is one implementation per kind of device: runtime/device/cpu, and for tests
// runtime/device/simt, which runs CUDA kernels on the host. test/runtime/device/ConformanceTest.cpp
// tests each of them. Memory is addressed as (arena, byte offset), as in the plan.
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
  std::string peakSource;   // where peakFlops comes from
  uint64_t memoryBytes = 0;
};

// A recorded function of the plan, which may be submitted many times.
class Executable {
public:
  virtual ~Executable() = default;
};

class Device {
public:
  virtual ~Device() = default;

  virtual DeviceInfo info(plan::DType computeDType) const = 0;

  // Allocates all arenas and loads all modules of `plan`. Must be called once; the plan must
  // outlive the device. Errors: not enough memory (with the sizes of the plan's arenas), a module
  // that this machine cannot run.
  virtual Result<void> load(const PlanFile &plan) = 0;

  // The bytes that the arenas occupy in memory.
  virtual uint64_t allocatedBytes() const = 0;

  // Prepares function `index`: every operand is resolved to an address once.
  virtual Result<std::unique_ptr<Executable>> record(int index) = 0;

  // Enqueues one run. Runs execute in the order of submission.
  virtual Result<void> submit(Executable &executable) = 0;

  // Waits for all submitted work. Reports failures that happened meanwhile.
  virtual Result<void> synchronize() = 0;

  // Copy between host memory and a slice, after all work submitted before. Both calls return when
  // the copy is complete.
  virtual Result<void> copyIn(int slice, const void *source, uint64_t bytes,
                              uint64_t offset = 0) = 0;
  virtual Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset = 0) = 0;
};

// Opens the device that `plan` was compiled for. With `threads` = 0 the device uses OMP_NUM_THREADS
// threads or, if that is not set, one per CPU that this process may run on.
Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, int threads = 0);

} // namespace lmc
