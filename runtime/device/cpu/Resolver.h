// Turns the commands of a plan into C++ functions. Addresses, shapes and kernels are looked up only
// once, when Device::record() prepares a function of the plan.
#pragma once

#include "runtime/comm/CollectiveQueue.h"
#include "runtime/comm/World.h"
#include "runtime/device/cpu/CpuModule.h"
#include "runtime/device/cpu/HostCommands.h"

#include <omp.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace lmc::cpu {

// A command with fixed addresses, ready to run. It throws if it fails.
using BoundCommand = std::function<void()>;

// An Error as an exception.
struct CommandFailed : std::runtime_error {
  explicit CommandFailed(const Error &error)
      : std::runtime_error(error.message), code(error.code) {}
  ExitCode code;
};

// An async collective: its number in its queue, and the times at which it began and ended.
struct StartedCollective {
  uint64_t number = 0;
  std::chrono::steady_clock::time_point begin, end;
};

// Throws `part` as CommandFailed if it is an error.
inline void orThrow(const Result<void> &part) {
  if (!part)
    throw CommandFailed(part.error());
}

// What resolve() uses: the memory, the kernels and the matrix products. It must outlive the
// commands that resolve() returns.
class Resolver {
public:
  Resolver(int threads, GemmChoices *choices, World *world)
      : threads(threads), world(world), gemms(threads, choices) {}

  // Returns the address of a slice as a `T *`, or null for an absent operand (slice -1).
  template <typename T = char> T *address(int64_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<T *>(memory.address(uint32_t(slice)));
  }
  // Returns the distance from one row of a matrix to the next, in elements: the slice's pitch, or
  // `columns` if its rows are adjacent.
  int64_t pitch(uint32_t slice, int64_t columns) const {
    const plan::Slice &at = memory.slice(slice);
    return at.pitch() ? int64_t(at.pitch() / byteWidth(at.dtype())) : columns;
  }
  Storage storage(uint32_t slice) const { return storageOf(memory.slice(slice).dtype()); }

  // Makes the scratch memory that forTasks() gives to each thread at least `bytes` bytes long. Its
  // size is whole pages plus one cache line, so that the scratch memories of two threads do not
  // start in the same cache set.
  void needScratch(size_t bytes) {
    scratchBytes = std::max(scratchBytes, int64_t((bytes + 4095) / 4096 * 4096 + 64));
    scratch.reserve(scratchBytes * threads);
  }
  // Calls task(i, scratch) for every i in [0, tasks), on all threads. Each thread has a scratch
  // memory of its own.
  template <typename Task> void forTasks(int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tasks > 1)
    for (int64_t i = 0; i < tasks; ++i)
      task(i, scratch.at(omp_get_thread_num() * scratchBytes));
  }

  const int threads;
  World *const world; // may be null for a plan without collectives
  // The function that is being recorded; for each of its commands that is an async collective, the
  // latest run; and the index of the command that is being resolved.
  const plan::Function *function = nullptr;
  std::shared_ptr<std::vector<StartedCollective>> started;
  uint32_t command = 0;
  HostMemory memory;
  std::vector<KernelEntry> entries; // the entry of each kernel of the plan
  GemmCache gemms;

  // Returns the queue of the collectives of a stream of the plan, 1 or 2.
  CollectiveQueue &queueOf(uint16_t stream) { return queues.at(stream - 1u); }
  // Waits until all async collectives have ended. Error: that of one that failed.
  Result<void> waitForQueues() {
    for (CollectiveQueue &queue : queues)
      LMC_TRY(queue.waitForAll());
    return {};
  }

private:
  AlignedMemory scratch;
  int64_t scratchBytes = 0;              // bytes of scratch per thread
  std::array<CollectiveQueue, 2> queues; // declared after `memory`, so destroyed before it
};

// Returns `command`, whose body is `op`, ready to run. The files of commands/ have a specialisation
// for each type of command. Error: this machine has no code for the command. May throw
// std::bad_alloc.
template <typename Body>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command, const Body &op);

} // namespace lmc::cpu
