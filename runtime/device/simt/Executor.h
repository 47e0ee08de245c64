// Runs the threads of a launch on the host. Each thread is a fiber. One runs at a time, and only a
// barrier or a collective of the warp lets another one continue.
//
// The hardware may execute blocks and threads in any order, so the executor chooses random ones:
// for blocks, and for threads whenever several could continue. Shared memory starts as garbage, and
// asynchronous copies arrive as late as allowed. A kernel whose result depends on any of this is
// wrong, and two runs reveal it (SimtKernel.h).
#pragma once

#include "runtime/device/simt/Arguments.h"
#include "runtime/device/simt/shim/MachineTable.h"

#include <array>
#include <cstdint>
#include <string>

namespace lmc::simt {

// Seeds of everything that a kernel must not depend on.
struct Order {
  uint64_t threads = 1, blocks = 1, garbage = 1;
  // If true, an asynchronous copy arrives only at the wait that requires it, and its target holds
  // garbage until then. If false, it arrives at once.
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

// Returns the table that a kernel's object needs before it runs.
Machine *machine();

// Executes a launch; only one may run at a time. A failure names the block, the threads and the
// place in the source.
LaunchResult execute(const Launch &launch, Memory &memory, const Order &order);

// Writes `bytes` of garbage that depends only on `seed` and `salt`: random bits with many NaN.
void fillGarbage(void *to, uint64_t bytes, uint64_t seed, uint64_t salt);

} // namespace lmc::simt
