#include "test/hostdriver/Memory.h"
#include "test/hostdriver/Hostility.h"
#include "test/simt/Executor.h"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace lmc::hostdriver {

static constexpr uint64_t kPage = 4096, kAlignment = 256;

// Returns half of this machine's memory. Allocations that would take more of it fail.
static uint64_t hostLimit() {
  return uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE)) / 2;
}

uint64_t Memory::total() const { return hostility().memory; }

uint64_t Memory::available() const {
  const uint64_t free = std::min(total(), hostility().free);
  const uint64_t taken = used[0] + takers * hostility().takes;
  return taken < free ? free - taken : 0;
}

void Memory::takeForLibrary() {
  if (hostility().takes > available())
    refuse(CUDA_ERROR_OUT_OF_MEMORY);
  most = std::max(most, ++takers);
}

void Memory::giveBack() { --takers; }

uint64_t Memory::allocate(uint64_t bytes, bool pinned) {
  if (bytes == 0)
    broken(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  if ((!pinned && bytes > available()) || used[0] + used[1] + bytes > hostLimit())
    refuse(CUDA_ERROR_OUT_OF_MEMORY);
  // The end of the allocation lies close to the second guard page.
  const uint64_t body = (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  const uint64_t pages = (body + kPage - 1) / kPage * kPage;
  void *mapping = mmap(nullptr, pages + 2 * kPage, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED)
    refuse(CUDA_ERROR_OUT_OF_MEMORY);
  char *first = static_cast<char *>(mapping) + kPage;
  mprotect(first, pages, PROT_READ | PROT_WRITE);
  char *start = first + pages - (body - kAlignment);
  if (reinterpret_cast<uint64_t>(start) % (2 * kAlignment) == 0)
    start -= kAlignment;
  ++allocated;
  // Kernels that do not run write nothing, so that garbage would stay and look like a divergence.
  if (!hostility().noKernels)
    simt::fillGarbage(start, bytes, hostility().seed, allocated << 48);
  const uint64_t address = reinterpret_cast<uint64_t>(start) | (pinned ? 0 : kDeviceBit);
  allocations[address] = {address, bytes, allocated, pinned, mapping, pages + 2 * kPage};
  used[pinned] += bytes;
  return address;
}

void Memory::free(uint64_t address) {
  auto found = allocations.find(address);
  used[found->second.pinned] -= found->second.bytes;
  munmap(found->second.mapping, found->second.mapped);
  allocations.erase(found);
}

Memory::~Memory() {
  while (!allocations.empty())
    free(allocations.begin()->first);
}

const Memory::Allocation &Memory::startingAt(uint64_t address, bool pinned) const {
  auto found = allocations.find(address);
  if (found == allocations.end() || found->second.pinned != pinned)
    broken(CUDA_ERROR_INVALID_VALUE, "{:#x} is not the start of live {} memory", address,
           pinned ? "pinned" : "device");
  return found->second;
}

const Memory::Allocation *Memory::holding(uint64_t address) const {
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin())
    return nullptr;
  const Allocation &before = std::prev(after)->second;
  return address < before.address + before.bytes ? &before : nullptr;
}

const Memory::Allocation &Memory::require(const Access &access, bool pinned,
                                          const std::string &what) const {
  const Allocation *at = holding(access.begin);
  if (!at || at->pinned != pinned)
    broken(CUDA_ERROR_INVALID_VALUE, "{}: {:#x} is not in live {} memory", what, access.begin,
           pinned ? "pinned" : "device");
  if (access.end() > at->address + at->bytes)
    broken(CUDA_ERROR_INVALID_VALUE,
           "{}: {} bytes at {:#x} reach past the end of {} bytes of {} memory", what,
           access.end() - access.begin, access.begin, at->bytes, pinned ? "pinned" : "device");
  return *at;
}

std::vector<uint64_t> Memory::numbersOf(const std::vector<Access> &accesses) const {
  std::vector<uint64_t> numbers;
  for (const Access &access : accesses) {
    const Allocation *at = holding(access.begin);
    numbers.push_back(at ? at->number : 0);
  }
  return numbers;
}

size_t Memory::count(bool pinned) const {
  size_t found = 0;
  for (const auto &[address, allocation] : allocations)
    found += allocation.pinned == pinned;
  return found;
}

} // namespace lmc::hostdriver
