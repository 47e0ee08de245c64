// The interface of a device: the operations that running a plan needs.
//
// Each type of device implements the interface: runtime/device/cpu, runtime/device/cuda, and for
// tests test/simt, which runs CUDA kernels on the host. test/runtime/device/conformance
// tests each implementation.
//
// A device executes work in the order in which the host enqueues it: runs of functions (submit),
// copies (upload, download) and marks (place). Enqueuing does not wait. To know that work is
// complete, the host enqueues a mark after it and waits for the mark. If work fails, every later
// wait returns the error.
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
  // One line for each difference between the device and the plan's description of it. None of them
  // changes a result.
  std::vector<std::string> remarks;
};

class GemmChoices;

// Options of a device that do not stand in the plan, because the user chooses them for each run.
struct DeviceOptions {
  // Threads of a CPU. 0: OMP_NUM_THREADS threads or, if that is not set, one per CPU that this
  // process may run on.
  int threads = 0;
  World *world = nullptr; // the ranks; may be null for a plan without collectives
  int index = 0;          // number of the device among those of the plan's type
  // Number of this rank among the ranks of its machine. If the rank sees several GPUs, it uses the
  // one with the number index + localRank.
  int localRank = 0;
  // The chosen implementations of matrix products. The device reads choices from it and adds its
  // own. It must outlive the device. Null: the device makes a fixed choice.
  GemmChoices *gemms = nullptr;
  // True if ranks on GPUs exchange data through the host's memory and `world` instead of NCCL.
  bool hostCollectives = false;
  bool graphs = true;             // true if a GPU captures functions as CUDA graphs
  bool checkEveryCommand = false; // true: wait after each command, so that an error names it
};

// A function of the plan that a device has prepared. It may be submitted many times.
class Executable {
public:
  virtual ~Executable() = default;
};

// The time at which a device ran a command of a function, in seconds; `start` counts from the start
// of the function's run.
struct CommandTime {
  double start = 0, seconds = 0;
};

// Host memory that a device can copy from and to without the host's help (pinned memory on a GPU).
// It must be destroyed before its device, and only after every copy that uses it is complete.
class HostBuffer {
public:
  virtual ~HostBuffer() = default;
  char *data() const { return start; }
  uint64_t bytes() const { return size; }

protected:
  char *start = nullptr;
  uint64_t size = 0;
};

// A point in the order of a device's work, with the time at which the device reached it. A mark
// may be placed again; it then forgets the earlier point.
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

  // Returns the device's remarks on its work since the last call, as lines for the log.
  virtual std::vector<std::string> takeNotes() { return {}; }

  // Allocates all arenas and loads all modules of `plan`. It must be called once, and `plan` must
  // outlive the device. Errors: the machine has too little memory (the message gives the sizes of
  // the arenas), or cannot run a module.
  virtual Result<void> load(const PlanFile &plan) = 0;

  // Returns the bytes that the plan's arenas occupy in memory.
  virtual uint64_t allocatedBytes() const = 0;

  // Prepares function `index` of the plan to run. The address of every operand is computed here,
  // once.
  virtual Result<std::unique_ptr<Executable>> record(int index) = 0;

  // Sets the text with which errors describe the runs that are enqueued from now on, such as
  // "step 3, micro-step 2 of 4"; "" if there is none.
  void setPurpose(std::string text) { purpose = std::move(text); }

  // Enqueues one run of a recorded function.
  virtual Result<void> submit(Executable &executable) = 0;
  // submitTimed() calls it with the number of a command when the command is complete and no later
  // command has begun. An async collective may still run; it is complete after the Wait for it.
  using AfterCommand = std::function<Result<void>(uint32_t command)>;

  // Runs a recorded function once, as submit() does, but command by command (never as a graph) and
  // after all earlier work, and waits until it is complete. The results have the same bits as those
  // of submit(). Returns the times of the commands, in the order of the plan. `after` is called
  // after each command and may copy from the device; the times then include the time that `after`
  // takes. Errors: those of wait(), or the first error that `after` returns.
  virtual Result<std::vector<CommandTime>> submitTimed(Executable &executable,
                                                       const AfterCommand &after = nullptr) = 0;

  // Allocates host memory for upload() and download(). All bytes are zero.
  virtual Result<std::unique_ptr<HostBuffer>> hostBuffer(uint64_t bytes) = 0;

  // upload() enqueues a copy from a host buffer to an arena, download() one from an arena to a host
  // buffer. The ArenaRange gives the number of bytes; in the host buffer they start at byte
  // `offset`. Until it has waited for a later mark, the host must not change the bytes of an
  // upload, nor use the bytes of a download. Error: a range is out of bounds.
  virtual Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) = 0;
  virtual Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset) = 0;

  // Creates a mark that is not placed yet.
  virtual Result<std::unique_ptr<Mark>> makeMark() = 0;
  // Enqueues the mark after all work that is enqueued so far.
  virtual Result<void> place(Mark &mark) = 0;
  // Waits until the device has reached the mark; returns at once if the mark was never placed.
  // Error: work of the device failed. The message names the op that failed, if it is known, else
  // the first and the last of the runs that may have failed, with the texts of setPurpose().
  virtual Result<void> wait(Mark &mark) = 0;
  // Returns true if wait() would return at once. Errors: those of wait().
  virtual Result<bool> reached(Mark &mark) = 0;
  // Returns the seconds between the times at which the device reached two marks. The caller must
  // have waited for both.
  virtual Result<double> secondsBetween(const Mark &from, const Mark &to) = 0;

  // Waits until all work is complete, and returns an error if some of it failed.
  virtual Result<void> synchronize() = 0;

  // Enqueues the computation of the initial values of the elements `part` of the plan's variable
  // `variable`, from the seed of the job. If the variable starts as a copy of another one, the same
  // elements of that one are read. Returns false if the device cannot compute the values: the
  // caller must then compute them itself and call copyIn().
  virtual Result<bool> initialize(int variable, const HeldPart &part, uint64_t seed) {
    return false;
  }

  // copyIn copies from host memory to a slice, copyOut from a slice to host memory; `offset` is in
  // bytes from the start of the slice. The copy begins after all work that was enqueued before it,
  // and is complete when the call returns. Several threads may call copyIn at the same time for
  // disjoint bytes.
  virtual Result<void> copyIn(int slice, const void *source, uint64_t bytes,
                              uint64_t offset = 0) = 0;
  virtual Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset = 0) = 0;

protected:
  std::string purpose;
};

// Opens the device that `plan` was compiled for.
Result<std::unique_ptr<Device>> openDevice(const PlanFile &plan, const DeviceOptions &options = {});

} // namespace lmc
