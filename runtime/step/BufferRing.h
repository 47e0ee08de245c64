// Host buffers that are used in turn for copies to and from a device. The host fills one buffer
// while the device still reads an earlier one.
#pragma once

#include "runtime/device/Device.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace lmc {

class BufferRing {
public:
  // Makes `count` buffers of `bytes` bytes each.
  static Result<BufferRing> make(Device &device, int count, uint64_t bytes);

  // Returns the next buffer, after the device has finished its earlier copies.
  Result<HostBuffer *> next();
  // Must be called when all copies that use the last buffer of next() are enqueued.
  Result<void> enqueued();

  // Waits until the copies of the oldest buffer that was not taken yet are complete, and returns
  // this buffer. Precondition: hasPending(). The buffer stays valid until next() returns it again.
  Result<HostBuffer *> take();
  bool hasPending() const { return taken < used; }
  // Returns true if next() would return a buffer that was not taken yet.
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
