// A ring of host buffers: the host can fill one while the device still reads another.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace lmc {

class BufferRing {
public:
  static Result<BufferRing> make(Device &device, int count, uint64_t bytes);

  // Returns the next buffer, after the copies from its last use are complete.
  Result<HostBuffer *> next();
  // Must be called after all copies that use the buffer from next() are enqueued.
  Result<void> enqueued();

  // Returns the oldest buffer that take() has not returned yet, once its copies are complete.
  // Requires hasPending().
  Result<HostBuffer *> take();
  bool hasPending() const { return taken < used; }
  // Returns true if next() would reuse a buffer that take() has not returned yet.
  bool isFull() const { return used - taken == slots.size(); }
  // Returns true if take() would return at once.
  Result<bool> isReady();

private:
  explicit BufferRing(Device &device) : device(&device) {}

  struct Slot {
    std::unique_ptr<HostBuffer> buffer;
    std::unique_ptr<Mark> done;
  };
  Slot &at(uint64_t number) { return slots[number % slots.size()]; }

  Device *device;
  std::vector<Slot> slots;
  uint64_t used = 0, taken = 0; // number of buffers used so far, and taken so far
};

} // namespace lmc
