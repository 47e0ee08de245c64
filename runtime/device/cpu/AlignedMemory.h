// Anonymous memory from the operating system: zeroed, on huge pages if available, released by the
// destructor.
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

  // Makes the memory at least `bytes` long. Growing it discards its contents. Throws std::bad_alloc
  // if the system has too little memory.
  void reserve(int64_t bytes);
  // Does the same, but returns false instead of throwing.
  bool tryReserve(uint64_t bytes);
  void release();

  char *at(int64_t offset) { return memory + offset; }
  char *data() const { return memory; }
  uint64_t bytes() const { return size; }

private:
  char *memory = nullptr;
  uint64_t size = 0; // as requested; whole pages are mapped
};

} // namespace lmc::cpu
