// Runs the threads of a kernel launch on the host. Each thread is a fiber. One fiber runs at a
// time, until it waits at a barrier or at a collective of its warp; then another one continues.
//
// A GPU may execute blocks and threads in any order. The executor therefore chooses random orders:
// of the blocks, and of the threads whenever several can continue. Shared memory starts as garbage,
// and asynchronous copies are completed as late as allowed. A kernel whose results depend on any of
// this is wrong, and two runs with different seeds reveal the mistake (SimtKernel.h).
#pragma once

#include "test/simt/Arguments.h"
#include "test/simt/shim/MachineTable.h"

#include <array>
#include <cstdint>
#include <string>

namespace lmc::simt {

// Seeds of the random choices that a correct kernel's results do not depend on: `threads` orders
// the threads of a block, `blocks` orders the blocks of a launch, `garbage` fills uninitialised
// memory.
struct Order {
  uint64_t threads = 1, blocks = 1, garbage = 1;
  // If true, an asynchronous copy is completed only at the wait that requires it, and its target
  // holds garbage until then. If false, the copy is completed at once.
  bool lateCopies = true;

  static Order of(uint64_t seed) { return {seed * 3 + 1, seed * 3 + 2, seed * 3 + 3}; }
};

struct Launch {
  void (*entry)(void *const *args) = nullptr;
  std::array<uint32_t, 3> grid = {1, 1, 1};
  uint32_t threads = 32;
  uint32_t sharedBytes = 0;
};

struct LaunchResult {
  std::string failure;  // "" if the launch succeeded
  bool atomics = false; // the kernel used atomic operations
};

// Returns the table of functions that kernels call. A kernel's object needs a pointer to it before
// the kernel runs.
Machine *machine();

// Executes a launch. Only one launch may be executed at a time. The text of a failure names the
// block, the threads and the place in the kernel's source.
LaunchResult execute(const Launch &launch, Memory &memory, const Order &order);

// Writes `bytes` of garbage that depends only on `seed` and `salt`: random bits with many NaN.
void fillGarbage(void *to, uint64_t bytes, uint64_t seed, uint64_t salt);

} // namespace lmc::simt
