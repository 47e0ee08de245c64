#include "runtime/device/cpu/Resolver.h"

#include <algorithm>

namespace lmc::cpu {

void Resolver::needScratch(size_t bytes) {
  // The size is rounded up to whole pages plus one cache line: the scratch memory of two threads
  // then shares no page, and does not start in the same cache set.
  size_t rounded = (bytes + 4095) / 4096 * 4096 + 64;
  scratchBytes = std::max(scratchBytes, int64_t(rounded));
  scratch.reserve(scratchBytes * threads);
}

} // namespace lmc::cpu
