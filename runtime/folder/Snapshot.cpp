#include "runtime/folder/Snapshot.h"

#include "ground/plan/PlannedBytes.h"
#include "ground/support/Size.h"
#include "runtime/device/Ranges.h"
#include "runtime/device/cpu/FreeMemory.h"
#include "runtime/folder/RunDirectory.h"

#include <fmt/format.h>

namespace lmc {

// Calls act(kind, tensor, offset) for each variable. The offsets in the buffer (in bytes) ascend.
template <typename Act> static void forTensors(const plan::Plan &plan, uint64_t rank, Act act) {
  uint64_t offset = 0;
  for (const auto &[file, kind] : stateFiles())
    for (const StateTensor &tensor : stateTensors(plan, rank, kind)) {
      act(kind, tensor, offset);
      const uint64_t end = offset + tensor.written.withPadding().count;
      offset = (end + kCopyAlignment - 1) / kCopyAlignment * kCopyAlignment;
    }
}

Result<std::unique_ptr<Snapshot>> Snapshot::make(const PlanFile &plan, Device &device,
                                                 World &world) {
  std::unique_ptr<Snapshot> snapshot(new Snapshot(plan, device, world));
  const uint64_t bytes = stateCopyBytes(*plan, snapshot->rank);
  uint64_t onHost = 0; // the copies of all ranks on this host, in bytes
  for (int rank = 0; rank < world.size(); ++rank)
    if (world.hostOf(rank) == world.hostOf(world.rank()))
      onHost += stateCopyBytes(*plan, static_cast<uint64_t>(rank));
  // Without this check, Linux would grant more memory than it has, and kill the process later.
  if (const cpu::FreeMemory free = cpu::freeMemory(); free.bytes < onHost)
    return userError("copies of the state need {} of the host's memory, of which {} are free ({})",
                     formatBytes(onHost), formatBytes(free.bytes), free.source);
  LMC_SET(snapshot->buffer, device.hostBuffer(bytes));
  LMC_SET(snapshot->taken, device.makeMark());
  return snapshot;
}

Result<void> Snapshot::take() {
  Result<void> enqueued;
  forTensors(*plan, rank,
             [&](plan::VariableKind, const StateTensor &tensor, uint64_t offset) {
               const HeldPart part = tensor.written.withPadding();
               if (!enqueued || part.count == 0)
                 return;
               auto range = rangeInSlice(&*plan, tensor.slice, part.count, part.at);
               enqueued = range ? device.download(*range, *buffer, offset)
                                : Result<void>(range.error());
             });
  LMC_TRY(enqueued);
  return device.place(*taken);
}

Result<bool> Snapshot::isComplete() { return device.reached(*taken); }

Result<void> Snapshot::wait() { return device.wait(*taken); }

std::vector<SnapshotPart> Snapshot::partsOfKind(plan::VariableKind kind) const {
  std::vector<SnapshotPart> parts;
  forTensors(*plan, rank, [&](plan::VariableKind each, const StateTensor &tensor, uint64_t offset) {
    if (each == kind)
      parts.push_back({tensor, buffer->data() + offset});
  });
  return parts;
}

DeviceTensors Snapshot::tensorsOfKind(plan::VariableKind kind) const {
  DeviceTensors result;
  auto parts = std::make_shared<const std::vector<SnapshotPart>>(partsOfKind(kind));
  for (const SnapshotPart &part : *parts)
    result.add(part.tensor);
  result.fetch = [parts](size_t index, void *to) -> Result<void> {
    const SnapshotPart &part = (*parts)[index];
    withoutPadding(part.tensor.written, part.data, static_cast<char *>(to));
    return {};
  };
  return result;
}

} // namespace lmc
