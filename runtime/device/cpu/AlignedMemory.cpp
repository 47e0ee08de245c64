#include "runtime/device/cpu/AlignedMemory.h"

#include <sys/mman.h>

#include <new>

namespace lmc::cpu {

static constexpr uint64_t kPage = 4096, kHugePage = 2 << 20;

static uint64_t wholePages(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

void AlignedMemory::release() {
  if (memory)
    munmap(memory, wholePages(size));
  memory = nullptr;
  size = 0;
}

bool AlignedMemory::tryReserve(uint64_t bytes) {
  if (bytes <= size)
    return true;
  if (bytes > UINT64_MAX / 2)
    return false;
  release();
  // Requests one more huge page, so that the memory can start at the boundary of a huge page.
  const uint64_t rounded = wholePages(bytes);
  const uint64_t slack = bytes >= kHugePage ? kHugePage : 0;
  void *address =
      mmap(nullptr, rounded + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return false;
  char *start = static_cast<char *>(address);
  if (slack) {
    uint64_t head = (kHugePage - reinterpret_cast<uintptr_t>(start) % kHugePage) % kHugePage;
    if (head)
      munmap(start, head);
    if (slack - head)
      munmap(start + head + rounded, slack - head);
    start += head;
    madvise(start, rounded, MADV_HUGEPAGE);
  }
  memory = start;
  size = bytes;
  return true;
}

void AlignedMemory::reserve(int64_t bytes) {
  if (!tryReserve(uint64_t(bytes)))
    throw std::bad_alloc();
}

} // namespace lmc::cpu
