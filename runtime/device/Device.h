// The interface of a device: the operations that running a plan needs.
//
// Each type of device implements the interface: runtime/device/cpu, and for tests
// runtime/device/simt, which runs CUDA kernels on the host. test/runtime/device/ConformanceTest.cpp
// tests each implementation. As in a plan, memory is addressed by slices: an arena and a byte
// offset.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <memory>
#include <string>

namespace lmc {

struct DeviceInfo {
  std::string name;         // "AMD EPYC, 2 threads"
  int threads = 1;          // threads that run commands; CPU only
  double peakFlops = 0;     // dense FLOP/s in the plan's compute dtype
  std::string peakSource;   // where peakFlops comes from
  uint64_t memoryBytes = 0;
};

class GemmChoices;

// What the user, not the plan, decides about a device.
struct DeviceOptions {
  // Threads of a CPU. 0: OMP_NUM_THREADS threads or, if that is not set, one per CPU that this
  // process may run on.
  int threads = 0;
  int index = 0; // which of several devices of the plan's type
  // The implementations of matrix products, which the device looks up, and to which it adds those
  // that it chooses. It must outlive the device. Null: the device takes a fixed choice.
  GemmChoices *gemms = nullptr;
  bool graphs = true;             // runs of a function may be captured and replayed
  bool checkEveryCommand = false; // the device waits after each command, so that errors name it
};

// A function of the plan that a device has prepared. It may be submitted many times.
class Executable {
public:
  virtual ~Executable() = default;
};

class Device {
public:
  virtual ~Device() = default;

  virtual DeviceInfo info(plan::DType computeDType) const = 0;

  // Allocates all arenas and loads all modules of `plan`. It must be called once, and `plan` must
  // outlive the device. Errors: the machine has too little memory (the message gives the sizes of
  // the arenas), or cannot run a module.
  virtual Result<void> load(const PlanFile &plan) = 0;

  // Returns the bytes that the plan's arenas occupy in memory.
  virtual uint64_t allocatedBytes() const = 0;

  // Prepares function `index` of the plan to run. The address of every operand is computed here,
  // once.
  virtual Result<std::unique_ptr<Executable>> record(int index) = 0;

  // Starts one run of a recorded function. Runs are executed in the order of submission.
  virtual Result<void> submit(Executable &executable) = 0;

  // Waits until all submitted runs are complete, and returns an error if one of them failed.
  virtual Result<void> synchronize() = 0;

  // copyIn copies from host memory to a slice, copyOut from a slice to host memory; `offset` is in
  // bytes from the start of the slice. The copy begins after all submitted runs, and is complete
  // when the call returns. Several threads may call copyIn at the same time for disjoint bytes.
  virtual Result<void> copyIn(int slice, const void *source, uint64_t bytes,
                              uint64_t offset = 0) = 0;
  virtual Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset = 0) = 0;
};

// Opens the device that `plan` was compiled for.
Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, const DeviceOptions &options = {});

} // namespace lmc
