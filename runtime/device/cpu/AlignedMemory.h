// A block of the operating system's memory. It starts as zeros, and uses huge pages if possible.
#pragma once

#include <cstdint>
#include <utility>

namespace lmc::cpu {

class AlignedMemory {
public:
  AlignedMemory() = default;
  ~AlignedMemory() { release(); }
  AlignedMemory(AlignedMemory &&other) noexcept
      : memory(std::exchange(other.memory, nullptr)), size(std::exchange(other.size, 0)) {}

  // Makes the memory at least `bytes` long. If it grows, its contents are lost. Throws
  // std::bad_alloc.
  void reserve(int64_t bytes);
  // Like reserve(), but returns false if the system has too little memory.
  bool tryReserve(uint64_t bytes);

  char *at(int64_t offset) { return memory + offset; }
  char *data() const { return memory; }
  uint64_t bytes() const { return size; }

private:
  void release();

  char *memory = nullptr;
  uint64_t size = 0; // requested bytes; the mapping is rounded up to whole pages
};

} // namespace lmc::cpu
