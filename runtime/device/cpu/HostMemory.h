// The arenas of a plan in this machine's memory, for the CPU device and the SIMT device.
#pragma once

#include "ground/plan/PlanFile.h"
#include "ground/support/Result.h"
#include "runtime/device/Ranges.h"
#include "runtime/device/cpu/AlignedMemory.h"

#include <cstdint>
#include <vector>

namespace lmc::cpu {

// A host buffer in ordinary memory.
class PlainBuffer final : public HostBuffer {
public:
  // Error: the machine has too little memory.
  static Result<std::unique_ptr<HostBuffer>> allocate(uint64_t bytes);

private:
  std::vector<char> storage;
};

class HostMemory {
public:
  // Allocates all arenas of the plan and sets them to zero. The plan must outlive this object. Call
  // this first: before it, only bytes() and functions that return a Result may be called. Error:
  // the machine has too little memory.
  Result<void> allocate(const PlanFile &file);
  // Returns the total number of bytes of all arenas.
  uint64_t bytes() const;

  AlignedMemory &arena(size_t index) { return arenas[index]; }
  const plan::Slice &slice(uint32_t index) const { return *plan->slices()->Get(index); }
  char *address(uint32_t index) {
    return arenas[slice(index).arena()].data() + slice(index).offset();
  }

  // Like Device::copyIn() and copyOut(). Error: the slice does not exist or is too short.
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset);
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset);
  // Error: `range` is not inside one arena.
  Result<void> check(const ArenaRange &range) const { return checkRange(plan, range); }
  // Like Device::upload() and download(), but the copy is complete when the call returns.
  Result<void> upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset);
  Result<void> download(const ArenaRange &from, HostBuffer &to, uint64_t offset);
  // Error: the plan has no function `index`.
  Result<const plan::Function *> function(int index) const { return functionOf(plan, index); }

private:
  Result<char *> find(const ArenaRange &range);

  const plan::Plan *plan = nullptr;
  std::vector<AlignedMemory> arenas;
};

} // namespace lmc::cpu
