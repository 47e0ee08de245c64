// A plan's arenas in the memory of this machine: the CPU device and the SIMT device have them
// in common.
#pragma once

#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc::cpu {

class HostMemory {
public:
  // Allocates every arena of the plan, which must outlive this object; all bytes are zero.
  // Error: the machine has not enough memory; the message gives the bytes of each arena.
  Result<void> allocate(const PlanFile &file);
  // False before allocate() succeeded; no other function may be called then, unless its comment
  // allows it.
  bool allocated() const { return plan != nullptr; }
  // Bytes of all arenas; may be called at any time.
  uint64_t bytes() const;

  AlignedMemory &arena(size_t index) { return arenas[index]; }
  const plan::Slice &slice(uint32_t index) const { return *plan->slices()->Get(index); }
  char *address(uint32_t index) {
    return arenas[slice(index).arena()].data() + slice(index).offset();
  }

  // Copies `bytes` bytes, from the byte `offset` of the slice on. Error: there is no such slice,
  // or not so many bytes; may be called at any time.
  Result<void> copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset);
  Result<void> copyOut(int slice, void *target, uint64_t bytes, uint64_t offset);
  // Function `index` of the plan. Error: there is none; may be called at any time.
  Result<const plan::Function *> function(int index) const;

private:
  Result<void> checkCopy(int slice, uint64_t bytes, uint64_t offset) const;

  const plan::Plan *plan = nullptr;
  std::vector<AlignedMemory> arenas;
};

} // namespace lmc::cpu
