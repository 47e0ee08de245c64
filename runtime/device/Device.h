// The interface of a device. runtime/device/cpu, runtime/device/cuda and, for tests, test/simt
// implement it, and test/runtime/device/conformance tests each implementation.
//
// A device executes work in the order in which the host enqueues it. Work is a run of a function
// (submit), a copy (upload, download) or a mark (place). The host waits for a mark to know that all
// work before it is complete. If work fails, every later wait returns the error.
#pragma once

#include "ground/plan/HeldPart.h"
#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"
#include "runtime/comm/World.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

struct DeviceInfo {
  std::string name;         // "AMD EPYC, 2 threads"
  int threads = 1;          // threads that run commands; CPU only
  double peakFlops = 0;     // dense FLOP/s in the dtype that info() was called with
  std::string peakSource;   // where peakFlops comes from
  uint64_t memoryBytes = 0;
  uint64_t freeBytes = 0; // free memory at the time of the call; GPU only
  // One line for each difference from the plan's description of the device. None changes results.
  std::vector<std::string> remarks;
};

class GemmChoices;

// Options of a device that the user chooses for each run.
struct DeviceOptions {
  // The threads of a CPU device. 0: OMP_NUM_THREADS, else one per CPU that this process may use.
  int threads = 0;
  World *world = nullptr; // the ranks; may be null for a plan without collectives
  int index = 0;          // index of the device in the list of visible devices of the plan's type
  // The number of this rank among the ranks on its machine. If the process sees several GPUs, the
  // rank uses GPU `index` + localRank.
  int localRank = 0;
  // Names the implementations of matrix products that the device must use. The device adds a choice
  // for each product without a usable one. The object must outlive the device. Null: fixed choices.
  GemmChoices *gemms = nullptr;
  // True: ranks on GPUs exchange data through the host's memory and `world` instead of NCCL.
  bool hostCollectives = false;
  bool graphs = true;             // true: a GPU captures functions as CUDA graphs
  bool checkEveryCommand = false; // true: wait after each command, so that an error names it
};

// A function of the plan that a device has prepared.
class Executable {
public:
  virtual ~Executable() = default;
};

// The start of a command, in seconds since the function's run began, and its duration.
struct CommandTime {
  double start = 0, seconds = 0;
};

// Host memory to and from which a device copies (pinned memory for a GPU). It must be destroyed
// before its device, and after all copies that use it.
class HostBuffer {
public:
  virtual ~HostBuffer() = default;
  char *data() const { return start; }
  uint64_t bytes() const { return size; }

protected:
  char *start = nullptr;
  uint64_t size = 0;
};

// A point in the sequence of a device's work. It records the time at which the device reaches it.
// It may be placed again.
class Mark {
public:
  virtual ~Mark() = default;
};

// Bytes of an arena.
struct ArenaRange {
  uint32_t arena = 0;
  uint64_t offset = 0, bytes = 0;
};

class Device {
public:
  virtual ~Device() = default;

  virtual DeviceInfo info(plan::DType computeDType) const = 0;

  // Returns lines for the log about the device's work since the last call.
  virtual std::vector<std::string> takeNotes() { return {}; }

  // Allocates all arenas and loads all modules of `plan`, which must outlive the device. It must be
  // called once. Errors: the machine has too little memory, or cannot run a module.
  virtual Result<void> load(const PlanFile &plan) = 0;

  virtual uint64_t allocatedBytes() const = 0;

  // Returns function `index` of the plan, prepared to run.
  virtual Result<std::unique_ptr<Executable>> record(int index) = 0;

  // Sets the text with which errors describe later runs: "step 3, micro-step 2 of 4".
  void setPurpose(std::string text) { purpose = std::move(text); }

  // Enqueues one run of a recorded function.
  virtual Result<void> submit(Executable &executable) = 0;
  // submitTimed() calls this function after command `command` is complete, and before the next one
  // begins. An async collective may still run then.
  using AfterCommand = std::function<Result<void>(uint32_t command)>;

  // Runs a recorded function like submit(), but waits after each command and calls `after`, which
  // may copy from the device. Returns the times of the commands, including the time in `after`.
  // Errors: those of wait(), or the first error that `after` returns.
  virtual Result<std::vector<CommandTime>> submitTimed(Executable &executable,
                                                       const AfterCommand &after = nullptr) = 0;

  // Allocates host memory. All bytes are zero.
  virtual Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t bytes) = 0;

  // upload() enqueues a copy from a host buffer, from its byte `offset` on, to an arena; download()
  // enqueues a copy back. The host must wait for a later mark before it changes uploaded bytes or
  // uses downloaded bytes. Error: a range is out of bounds.
  virtual Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) = 0;
  virtual Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset) = 0;

  // Creates a mark that is not placed yet.
  virtual Result<std::unique_ptr<Mark>> makeMark() = 0;
  // Enqueues the mark.
  virtual Result<void> place(Mark &mark) = 0;
  // Waits until the device has reached the mark, unless the mark was never placed. Error: work
  // failed. The message names the failed op. If the device does not know the op, the message names
  // the runs of functions that may have failed.
  virtual Result<void> wait(Mark &mark) = 0;
  // Returns true if wait() would return at once. Errors: those of wait().
  virtual Result<bool> reached(Mark &mark) = 0;
  // Returns the seconds between two marks. The caller must have waited for both.
  virtual Result<double> secondsBetween(const Mark &from, const Mark &to) = 0;

  // Waits until all work is complete. Error: some of it failed.
  virtual Result<void> synchronize() = 0;

  // Enqueues the computation of a variable's initial values, only for the elements in `part`, with
  // the job's `seed`. A variable that starts as a copy gets these elements of its source variable.
  // Returns false if the device cannot compute the values; the caller must then compute them.
  virtual Result<bool> initialize(int variable, const HeldPart &part, uint64_t seed) {
    return false;
  }

  // copyIn() copies `bytes` bytes from host memory to a slice, from byte `offset` of the slice on;
  // copyOut() copies back. The copy begins after all earlier work, and is complete when the call
  // returns. Several threads may call copyIn() at the same time for disjoint bytes.
  virtual Result<void> copyIn(int slice, const void *source, uint64_t bytes,
                              uint64_t offset = 0) = 0;
  virtual Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset = 0) = 0;

protected:
  std::string purpose;
};

// Opens the device that `plan` was compiled for.
Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, const DeviceOptions &options = {});

} // namespace lmc
