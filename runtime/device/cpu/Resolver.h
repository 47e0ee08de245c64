// Commands of a plan resolved to what runs on the CPU: addresses, shapes and kernels are looked
// up once, when a function is recorded.
#pragma once

#include "runtime/device/cpu/CpuModule.h"
#include "runtime/device/cpu/HostCommands.h"

#include <omp.h>

#include <functional>
#include <memory>
#include <vector>

namespace lmc::cpu {

// Runs a command whose operands are at fixed addresses.
using Step = std::function<void()>;

// What the commands of a plan are resolved against. It outlives their steps.
class Resolver {
public:
  explicit Resolver(int threads) : threads(threads), gemms(threads) {}

  // Null for an optional operand that is absent (-1). `T` is what the slice holds.
  template <typename T = char> T *address(int64_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<T *>(memory.address(uint32_t(slice)));
  }
  // Elements from one row of a matrix to the next: `columns` where they touch.
  int64_t pitch(uint32_t slice, int64_t columns) const {
    const plan::Slice &at = memory.slice(slice);
    return at.pitch() ? int64_t(at.pitch() / byteWidth(at.dtype())) : columns;
  }
  Storage storage(uint32_t slice) const { return storageOf(memory.slice(slice).dtype()); }

  // Makes `bytes` of scratch memory available to every task of forTasks.
  void needScratch(size_t bytes);
  // Runs task(i, scratch) for i in [0, tasks), on all threads.
  template <typename Task> void forTasks(int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tasks > 1)
    for (int64_t i = 0; i < tasks; ++i)
      task(i, scratch.at(omp_get_thread_num() * scratchBytes));
  }

  const int threads;
  HostMemory memory;
  std::vector<KernelEntry> entries; // of the plan's kernels
  GemmCache gemms;

private:
  AlignedMemory scratch;
  int64_t scratchBytes = 0; // of each thread
};

// Returns what runs `command`, whose body is `op`. A file of commands/ has it for each kind of
// command. Error: the machine has no code for it. Throws std::bad_alloc.
template <typename Body>
Result<Step> resolve(Resolver &at, const plan::Command &command, const Body &op);

} // namespace lmc::cpu
