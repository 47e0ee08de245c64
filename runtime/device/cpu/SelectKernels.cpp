// Selects the kernels for this machine by the features of its processor.
#include "runtime/device/cpu/kernels/Kernels.h"

#include <cstdlib>
#include <cstring>

namespace lmc::cpu {

namespace baseline {
const KernelSet &kernels();
}
#if defined(__x86_64__)
namespace avx2 {
const KernelSet &kernels();
}
namespace avx512 {
const KernelSet &kernels();
const KernelSet &kernelsWithBf16();
}
#endif

namespace {

struct Sets {
  const KernelSet *sets[4];
  int count = 0;

  Sets() {
    sets[count++] = &baseline::kernels();
#if defined(__x86_64__)
    // The builtin also checks that the operating system saves vector registers.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      sets[count++] = &avx2::kernels();
    if (count == 2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
      sets[count++] = &avx512::kernels();
    if (count == 3 && __builtin_cpu_supports("avx512bf16"))
      sets[count++] = &avx512::kernelsWithBf16();
#endif
  }
};

const Sets &available() {
  static const Sets sets;
  return sets;
}

} // namespace

const KernelSet &kernelSet() {
  static const KernelSet &set = []() -> const KernelSet & {
    const char *wanted = std::getenv("LMC_CPU_ISA");
    for (int i = 0; wanted && i < available().count; ++i)
      if (std::strcmp(available().sets[i]->name, wanted) == 0)
        return *available().sets[i];
    return *available().sets[available().count - 1];
  }();
  return set;
}

const KernelSet *const *kernelSets(int &count) {
  count = available().count;
  return available().sets;
}

} // namespace lmc::cpu
