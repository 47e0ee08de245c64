// Selects the kernels for this machine by the features of its processor.
#include "runtime/device/cpu/CpuMachine.h"

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

const std::vector<const KernelSet *> &kernelSets() {
  static const std::vector<const KernelSet *> all = [] {
    std::vector<const KernelSet *> sets = {&baseline::kernels()};
#if defined(__x86_64__)
    // The builtin also checks that the operating system saves vector registers.
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
      sets.push_back(&avx2::kernels());
    if (sets.size() == 2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      sets.push_back(&avx512::kernels());
    if (sets.size() == 3 && __builtin_cpu_supports("avx512bf16"))
      sets.push_back(&avx512::kernelsWithBf16());
#endif
    return sets;
  }();
  return all;
}

const KernelSet &kernelSet() {
  static const KernelSet &set = []() -> const KernelSet & {
    const char *wanted = std::getenv("LMC_CPU_ISA");
    for (const KernelSet *each : kernelSets())
      if (wanted && std::strcmp(each->name, wanted) == 0)
        return *each;
    return *kernelSets().back();
  }();
  return set;
}

} // namespace lmc::cpu
