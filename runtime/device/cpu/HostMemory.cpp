#include "runtime/device/cpu/HostMemory.h"
#include "ground/plan/PlannedBytes.h"
#include "runtime/device/cpu/CpuMachine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace lmc::cpu {

Result<void> HostMemory::allocate(const PlanFile &file) {
  if (plan)
    return Error{"a device loads one plan only", ExitCode::Failure};
  const uint64_t needed = plannedBytes(*file);
  auto tooLarge = [&] {
    return Error{fmt::format("{}: the plan needs {:.2f} GiB ({}), and this machine has {:.2f} GiB; "
                             "compile with a smaller micro_batch_size or [memory] budget",
                             file.path(), double(needed) / (1 << 30), arenaBreakdown(*file),
                             double(memoryBytes()) / (1 << 30)),
                 ExitCode::DoesNotFit};
  };
  if (needed > memoryBytes())
    return tooLarge();
  for (const auto *arena : *file->arenas()) {
    // Even an empty arena gets one byte, because its slices need an address.
    arenas.emplace_back();
    if (!arenas.back().tryReserve(std::max<uint64_t>(arena->bytes(), 1)))
      return tooLarge();
  }
  plan = &*file;
  return {};
}

uint64_t HostMemory::bytes() const {
  uint64_t bytes = 0;
  for (const AlignedMemory &arena : arenas)
    bytes += arena.bytes();
  return bytes;
}

Result<std::unique_ptr<HostBuffer>> PlainBuffer::allocate(uint64_t bytes) {
  auto buffer = std::make_unique<PlainBuffer>();
  try {
    buffer->storage.resize(bytes);
  } catch (const std::bad_alloc &) {
    return machineError("not enough memory for a host buffer of {} bytes", bytes);
  }
  buffer->start = buffer->storage.data();
  buffer->size = bytes;
  return std::unique_ptr<HostBuffer>(std::move(buffer));
}

Result<char *> HostMemory::find(const ArenaRange &range) {
  LMC_TRY(checkRange(plan, range));
  return arenas[range.arena].data() + range.offset;
}

Result<void> HostMemory::upload(const ArenaRange &to, const HostBuffer &from, uint64_t offset) {
  LMC_LET(address, find(to));
  LMC_TRY(checkRange(from, offset, to.bytes));
  std::memcpy(*address, from.data() + offset, to.bytes);
  return {};
}

Result<void> HostMemory::download(const ArenaRange &from, HostBuffer &to, uint64_t offset) {
  LMC_LET(address, find(from));
  LMC_TRY(checkRange(to, offset, from.bytes));
  std::memcpy(to.data() + offset, *address, from.bytes);
  return {};
}

Result<void> HostMemory::copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) {
  LMC_LET(range, rangeInSlice(plan, slice, bytes, offset));
  std::memcpy(arenas[range->arena].data() + range->offset, source, bytes);
  return {};
}

Result<void> HostMemory::copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) {
  LMC_LET(range, rangeInSlice(plan, slice, bytes, offset));
  std::memcpy(target, arenas[range->arena].data() + range->offset, bytes);
  return {};
}

} // namespace lmc::cpu
