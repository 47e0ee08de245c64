// A copy of the state in the host's memory, from which a checkpoint or an export is written in the
// background.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/folder/DeviceTensors.h"

#include <memory>
#include <vector>

namespace lmc {

// A variable in a snapshot. `data` has the layout of the variable's slice: rows with padding.
struct SnapshotPart {
  StateTensor tensor;
  const char *data = nullptr; // first byte of the copy of tensor.written
};

// One rank's part of the state. For a GPU the memory is pinned, so that the GPU can copy to it
// while the host goes on.
class Snapshot {
public:
  // Allocates the memory. The arguments must outlive the snapshot. Error: the host has too little
  // free memory.
  static Result<std::unique_ptr<Snapshot>> make(const PlanFile &plan, Device &device, World &world);

  // Enqueues the copies after all enqueued work. The results of an earlier take() become invalid.
  Result<void> take();
  // Returns true if the copies are complete. The errors are those of Device::wait().
  Result<bool> isComplete();
  // Waits until the copies are complete.
  Result<void> wait();

  // Return the variables of a kind. DeviceTensors::store is empty; any thread may call `fetch`. The
  // copies must be complete.
  DeviceTensors tensorsOfKind(plan::VariableKind kind) const;
  std::vector<SnapshotPart> partsOfKind(plan::VariableKind kind) const;

  uint64_t bytes() const { return buffer->bytes(); }

private:
  Snapshot(const PlanFile &plan, Device &device, World &world)
      : plan(plan), device(device), rank(static_cast<uint64_t>(world.rank())) {}

  const PlanFile &plan;
  Device &device;
  const uint64_t rank;
  std::unique_ptr<HostBuffer> buffer; // the parts of all variables, in the order of their kinds
  std::unique_ptr<Mark> taken;
};

} // namespace lmc
