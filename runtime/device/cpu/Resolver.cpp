#include "runtime/device/cpu/Resolver.h"

#include <algorithm>

namespace lmc::cpu {

void Resolver::needScratch(size_t bytes) {
  // Whole pages plus one cache line: the scratch of neighbouring threads then shares neither pages
  // nor cache sets.
  size_t rounded = (bytes + 4095) / 4096 * 4096 + 64;
  scratchBytes = std::max(scratchBytes, int64_t(rounded));
  scratch.reserve(scratchBytes * threads);
}

} // namespace lmc::cpu
