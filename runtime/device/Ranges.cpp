#include "runtime/device/Ranges.h"

#include <fmt/format.h>

namespace lmc {

Result<ArenaRange> rangeInSlice(const plan::Plan *plan, int slice, uint64_t bytes,
                                uint64_t offset) {
  if (!plan || slice < 0 || uint32_t(slice) >= plan->slices()->size())
    return machineError("the plan has no slice {}", slice);
  const plan::Slice &of = *plan->slices()->Get(uint32_t(slice));
  if (offset > of.bytes() || bytes > of.bytes() - offset)
    return machineError("a copy of {} bytes at {} is outside of slice {} ({} bytes)", bytes, offset,
                        slice, of.bytes());
  return ArenaRange{of.arena(), of.offset() + offset, bytes};
}

Result<void> checkRange(const plan::Plan *plan, const ArenaRange &range) {
  if (!plan || range.arena >= plan->arenas()->size())
    return machineError("the plan has no arena {}", range.arena);
  const uint64_t size = plan->arenas()->Get(range.arena)->bytes();
  if (range.offset > size || range.bytes > size - range.offset)
    return machineError("{} bytes at {} are outside of arena {} ({} bytes)", range.bytes,
                        range.offset, range.arena, size);
  return {};
}

Result<void> checkRange(const HostBuffer &buffer, uint64_t offset, uint64_t bytes) {
  if (offset > buffer.bytes() || bytes > buffer.bytes() - offset)
    return machineError("{} bytes at {} are outside of a host buffer of {} bytes", bytes, offset,
                        buffer.bytes());
  return {};
}

Result<const plan::Function *> functionOf(const plan::Plan *plan, int index) {
  if (!plan || index < 0 || uint32_t(index) >= plan->functions()->size())
    return machineError("the plan has no function {}", index);
  return plan->functions()->Get(uint32_t(index));
}

std::string arenaBreakdown(const plan::Plan &plan) {
  std::string text;
  for (const auto *arena : *plan.arenas())
    text += fmt::format("{}{} {:.2f} GiB", text.empty() ? "" : ", ", arena->name()->str(),
                        double(arena->bytes()) / (1 << 30));
  return text;
}

} // namespace lmc
