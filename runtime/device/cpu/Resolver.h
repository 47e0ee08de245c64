// Commands of a plan in the form in which the CPU runs them: addresses, shapes and kernels are
// looked up once, when a function is recorded.
#pragma once

#include "runtime/device/cpu/CpuModule.h"
#include "runtime/device/cpu/HostCommands.h"

#include <omp.h>

#include <functional>
#include <memory>
#include <vector>

namespace lmc::cpu {

// A command with fixed addresses, ready to run.
using Step = std::function<void()>;

// The plan, memory and machine that commands are resolved with. It must outlive the resolved steps.
class Resolver {
public:
  explicit Resolver(int threads) : threads(threads), gemms(threads) {}

  // Returns the address of a slice whose elements are `T`; null for an absent operand (-1).
  template <typename T = char> T *address(int64_t slice) {
    return slice < 0 ? nullptr : reinterpret_cast<T *>(memory.address(uint32_t(slice)));
  }
  // Returns the elements from one row of a matrix to the next: `columns` if rows are adjacent.
  int64_t pitch(uint32_t slice, int64_t columns) const {
    const plan::Slice &at = memory.slice(slice);
    return at.pitch() ? int64_t(at.pitch() / byteWidth(at.dtype())) : columns;
  }
  Storage storage(uint32_t slice) const { return storageOf(memory.slice(slice).dtype()); }

  // Reserves `bytes` of scratch memory for every task of forTasks.
  void needScratch(size_t bytes);
  // Runs task(i, scratch) for i in [0, tasks), on all threads.
  template <typename Task> void forTasks(int64_t tasks, Task task) {
#pragma omp parallel for num_threads(threads) schedule(dynamic) if (tasks > 1)
    for (int64_t i = 0; i < tasks; ++i)
      task(i, scratch.at(omp_get_thread_num() * scratchBytes));
  }

  const int threads;
  HostMemory memory;
  std::vector<KernelEntry> entries; // per kernel of the plan
  GemmCache gemms;

private:
  AlignedMemory scratch;
  int64_t scratchBytes = 0; // of each thread
};

// Returns the step that runs `command`, whose body is `op`. Each kind of command has a
// specialisation in a file of commands/. Fails if this machine has no code for the command. May
// throw std::bad_alloc.
template <typename Body>
Result<Step> resolve(Resolver &at, const plan::Command &command, const Body &op);

} // namespace lmc::cpu
