// A copy of the state in the host's memory. A checkpoint or an export is written from it while the
// device continues.
#pragma once

#include "runtime/comm/World.h"
#include "runtime/folder/DeviceTensors.h"

#include <memory>
#include <vector>

namespace lmc {

// A variable in a snapshot: the place of a rank's part, which has the layout of the variable's
// slice, with the padding between rows.
struct SnapshotPart {
  StateTensor tensor;
  const char *data = nullptr; // of the bytes tensor.written
};

// One rank's share of the state, of stateCopyBytes() bytes. On a GPU its memory is pinned, so that
// the GPU copies by itself.
class Snapshot {
public:
  // Allocates the memory. `plan`, `device` and `world` must outlive the snapshot. Error: the host
  // has too little free memory.
  static Result<std::unique_ptr<Snapshot>> make(const PlanFile &plan, Device &device, World &world);

  // Enqueues the copies, behind all work so far. The device changes the state only after they are
  // complete. Tensors of an earlier call must not be read any more.
  Result<void> take();
  // Returns true if the copies are complete. Error: as of Device::wait().
  Result<bool> isComplete();
  // Waits until they are complete.
  Result<void> wait();

  // Return the variables of a kind at the last take(), which must be complete. `fetch` may be
  // called by any thread; there is no `store`.
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
