// Anonymous memory from the operating system: zeroed, on huge pages where the
// system has them, given back on destruction.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lmc::cpu {

class AlignedMemory {
public:
  AlignedMemory() = default;
  ~AlignedMemory() { release(); }
  AlignedMemory(AlignedMemory &&other) noexcept : memory(other.memory), size(other.size) {
    other.memory = nullptr;
    other.size = 0;
  }
  AlignedMemory &operator=(AlignedMemory &&other) noexcept;

  // At least `bytes`; what was there is lost when it grows. Throws
  // std::bad_alloc when the system refuses.
  void reserve(int64_t bytes);
  // The same without exceptions.
  bool tryReserve(uint64_t bytes);
  void release();

  char *at(int64_t offset) { return memory + offset; }
  char *data() const { return memory; }
  uint64_t bytes() const { return size; }

private:
  char *memory = nullptr;
  uint64_t size = 0; // as asked for; whole pages are mapped
};

} // namespace lmc::cpu
