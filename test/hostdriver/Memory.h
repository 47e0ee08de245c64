// Device memory and pinned host memory.
//
// A device address is the address of host memory with bit 56 set. No machine maps such an address,
// so that host code that dereferences it faults. Each allocation lies between two pages that fault,
// is aligned to 256 bytes and no more, and starts as garbage with many NaN.
#pragma once

#include "test/hostdriver/Failure.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lmc::hostdriver {

// The bytes that a command accesses: `rows` runs of `run` bytes, whose starts lie `pitch` apart.
struct Access {
  uint64_t begin = 0, run = 0;
  bool write = false;
  uint64_t rows = 1, pitch = 0;

  uint64_t end() const { return begin + (rows - 1) * pitch + run; }
};

inline bool mayOverlap(const Access &a, const Access &b) {
  return a.begin < b.end() && b.begin < a.end();
}

class Memory {
public:
  struct Allocation {
    uint64_t address, bytes;
    uint64_t number; // of all allocations ever made
    bool pinned;
    void *mapping;
    size_t mapped;
    Access all() const { return {address, bytes, true}; }
  };

  ~Memory();

  // Returns the address. Fails with CUDA_ERROR_OUT_OF_MEMORY.
  uint64_t allocate(uint64_t bytes, bool pinned);
  void free(uint64_t address);
  // Returns the allocation that starts at `address`. Fails with CUDA_ERROR_INVALID_VALUE.
  const Allocation &startingAt(uint64_t address, bool pinned) const;
  // Returns the allocation that holds the byte; null if none does.
  const Allocation *holding(uint64_t address) const;
  // Fails unless all bytes of `access` lie in one allocation of that kind; the error begins with
  // `what`.
  const Allocation &require(const Access &access, bool pinned, const std::string &what) const;

  // Returns the number of the allocation that holds each access; 0 if none does.
  std::vector<uint64_t> numbersOf(const std::vector<Access> &accesses) const;

  // Returns where the stand-in itself finds a byte of either kind of memory.
  static char *host(uint64_t address) { return reinterpret_cast<char *>(address & ~kDeviceBit); }

  // Returns how many have called takeForLibrary() at the same time, at most.
  uint64_t mostTakers() const { return most; }
  uint64_t deviceBytes() const { return used[0]; }
  uint64_t pinnedBytes() const { return used[1]; }
  // The driver's context, modules, libraries and graphs take LMC_HOST_TAKES bytes of the device
  // each. Fails with CUDA_ERROR_OUT_OF_MEMORY.
  LMC_HOST_EXPORT void takeForLibrary();
  LMC_HOST_EXPORT void giveBack();
  uint64_t total() const;     // of the device
  uint64_t available() const; // of the device
  size_t count(bool pinned) const;

private:
  static constexpr uint64_t kDeviceBit = uint64_t(1) << 56;
  std::map<uint64_t, Allocation> allocations; // by address
  uint64_t used[2] = {};                      // bytes of device memory, of pinned memory
  uint64_t allocated = 0;                     // allocations ever made
  uint64_t takers = 0, most = 0;              // what has called takeForLibrary()
};

} // namespace lmc::hostdriver
