// Runs the threads of a launch on the host: each is a fiber, one runs at a time, and only a
// barrier or a collective of the warp lets another one go on.
//
// Every order that the hardware may take is as good as any other, so the executor takes random
// ones: of blocks, and of threads whenever it must choose. Shared memory starts as garbage, and
// asynchronous copies arrive as late as they may. A kernel whose result depends on any of this
// is wrong, and two runs show it (SimtKernel.h).
#pragma once

#include "runtime/device/simt/Arguments.h"
#include "runtime/device/simt/shim/MachineTable.h"

#include <array>
#include <cstdint>
#include <string>

namespace lmc::simt {

// Seeds of all that a kernel must not depend on.
struct Order {
  uint64_t threads = 1, blocks = 1, garbage = 1;
  // Asynchronous copies arrive at the wait that requires them, and leave garbage at their
  // target until then. Otherwise they arrive at once.
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
  std::string failure;  // "": none
  bool atomics = false; // the kernel used atomic operations
};

// The table to give to a kernel's object before it runs.
Machine *machine();

// One launch at a time. A failure names the block, the threads and the place in the source.
LaunchResult execute(const Launch &launch, Memory &memory, const Order &order);

// `bytes` of garbage that depends on the seed and `salt` alone: random bits with many NaN.
void fillGarbage(void *to, uint64_t bytes, uint64_t seed, uint64_t salt);

} // namespace lmc::simt
