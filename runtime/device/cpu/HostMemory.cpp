#include "runtime/device/cpu/HostMemory.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/plan/PlannedBytes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace lmc::cpu {

static std::string arenaBreakdown(const plan::Plan &plan) {
  std::string text;
  for (const auto *arena : *plan.arenas())
    text += fmt::format("{}{} {:.2f} GiB", text.empty() ? "" : ", ", arena->name()->str(),
                        double(arena->bytes()) / (1 << 30));
  return text;
}

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
    // Even an empty arena gets a byte, because its slices need an address.
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

Result<void> HostMemory::checkCopy(int slice, uint64_t bytes, uint64_t offset) const {
  if (!plan || slice < 0 || uint32_t(slice) >= plan->slices()->size())
    return Error{fmt::format("the plan has no slice {}", slice), ExitCode::Failure};
  uint64_t size = plan->slices()->Get(uint32_t(slice))->bytes();
  if (offset > size || bytes > size - offset)
    return Error{fmt::format("a copy of {} bytes at {} is outside of slice {} ({} bytes)", bytes,
                             offset, slice, size),
                 ExitCode::Failure};
  return {};
}

Result<void> HostMemory::copyIn(int slice, const void *source, uint64_t bytes, uint64_t offset) {
  LMC_TRY(checkCopy(slice, bytes, offset));
  std::memcpy(address(uint32_t(slice)) + offset, source, bytes);
  return {};
}

Result<void> HostMemory::copyOut(int slice, void *target, uint64_t bytes, uint64_t offset) {
  LMC_TRY(checkCopy(slice, bytes, offset));
  std::memcpy(target, address(uint32_t(slice)) + offset, bytes);
  return {};
}

Result<const plan::Function *> HostMemory::function(int index) const {
  if (!plan || index < 0 || uint32_t(index) >= plan->functions()->size())
    return Error{fmt::format("the plan has no function {}", index), ExitCode::Failure};
  return plan->functions()->Get(uint32_t(index));
}

} // namespace lmc::cpu
