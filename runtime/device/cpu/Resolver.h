// Turns the commands of a plan into C++ functions, when Device::record() prepares a function.
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

// A command that is ready to run. It throws if it fails.
using BoundCommand = std::function<void()>;

// An exception with the message and the code of an Error.
struct CommandFailed : std::runtime_error {
  explicit CommandFailed(const Error &error)
      : std::runtime_error(error.message), code(error.code) {}
  ExitCode code;
};

// An async collective that was started. `number` is what CollectiveQueue::add() returned for it.
struct StartedCollective {
  uint64_t number = 0;
  std::chrono::steady_clock::time_point begin, end;
};

inline void orThrow(const Result<void> &part) {
  if (!part)
    throw CommandFailed(part.error());
}

// The memory, kernels and matrix products that resolve() uses. It must outlive the commands that
// resolve() returns.
class Resolver {
public:
  Resolver(int threads, GemmChoices *choices, World *world)
      : threads(threads), world(world), gemms(threads, choices) {}

  // Returns the address of a slice as a `T *`, or null for an absent operand (slice -1).
  template <typename T = char> T *address(int64_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<T *>(memory.address(uint32_t(slice)));
  }
  // Returns the distance in elements from one row of a matrix to the next: `columns` if the slice
  // has no pitch.
  int64_t pitch(uint32_t slice, int64_t columns) const {
    const plan::Slice &at = memory.slice(slice);
    return at.pitch() ? int64_t(at.pitch() / byteWidth(at.dtype())) : columns;
  }
  Storage storage(uint32_t slice) const { return storageOf(memory.slice(slice).dtype()); }

  // Makes each thread's scratch memory at least `bytes` bytes long. The size is 64 bytes more than
  // a multiple of 4096, so that the memories of two threads start in different sets of the cache.
  void needScratch(size_t bytes) {
    scratchBytes = std::max(scratchBytes, int64_t((bytes + 4095) / 4096 * 4096 + 64));
    scratch.reserve(scratchBytes * threads);
  }
  // Calls task(i, scratch) for every i in [0, tasks), on all threads, each with its own scratch.
  template <typename Task> void forTasks(int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tasks > 1)
    for (int64_t i = 0; i < tasks; ++i)
      task(i, scratch.at(omp_get_thread_num() * scratchBytes));
  }

  const int threads;
  World *const world; // may be null for a plan without collectives
  // `function` is being recorded, and its command number `command` is being resolved. `started` has
  // the latest run of each async collective of `function`, indexed by command.
  const plan::Function *function = nullptr;
  std::shared_ptr<std::vector<StartedCollective>> started;
  uint32_t command = 0;
  HostMemory memory;
  std::vector<KernelEntry> entries; // the entry of each kernel of the plan
  GemmCache gemms;

  // Returns the queue of collectives of stream 1 or 2.
  CollectiveQueue &queueOf(uint16_t stream) { return queues.at(stream - 1u); }
  // Waits until all async collectives have ended. Error: one has failed.
  Result<void> waitForQueues() {
    for (CollectiveQueue &queue : queues)
      LMC_TRY(queue.waitForAll());
    return {};
  }

private:
  AlignedMemory scratch;
  int64_t scratchBytes = 0;              // bytes of scratch per thread
  std::array<CollectiveQueue, 2> queues; // destroyed before `memory` above, which collectives use
};

// Makes `command` ready to run; `op` is its body. The files of commands/ have a specialisation for
// each type of command. May throw std::bad_alloc.
template <typename Body>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command, const Body &op);

} // namespace lmc::cpu
