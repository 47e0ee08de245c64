#include "runtime/step/BufferRing.h"

#include <algorithm>

namespace lmc {

Result<BufferRing> BufferRing::make(Device &device, int count, uint64_t bytes) {
  BufferRing ring(device);
  for (int i = 0; i < count; ++i) {
    LMC_LET(buffer, device.hostBuffer(std::max<uint64_t>(bytes, 1)));
    LMC_LET(mark, device.makeMark());
    ring.slots.push_back({std::move(*buffer), std::move(*mark)});
  }
  return ring;
}

Result<HostBuffer *> BufferRing::next() {
  Slot &slot = at(used);
  LMC_TRY(device->wait(*slot.done));
  return slot.buffer.get();
}

Result<void> BufferRing::enqueued() { return device->place(*at(used++).done); }

Result<HostBuffer *> BufferRing::take() {
  Slot &slot = at(taken);
  LMC_TRY(device->wait(*slot.done));
  ++taken;
  return slot.buffer.get();
}

Result<bool> BufferRing::isReady() { return device->reached(*at(taken).done); }

} // namespace lmc
