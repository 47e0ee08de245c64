#include "runtime/device/cpu/CpuMachine.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace lmc::cpu {

// Returns VALUE of the first line "KEY : VALUE" of /proc/cpuinfo for KEY = `key`, or `unknown`.
static std::string ofProcessor(std::string_view key, std::string unknown) {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);)
    if (line.starts_with(key))
      if (size_t colon = line.find(": "); colon != std::string::npos)
        return line.substr(colon + 2);
  return unknown;
}

bool hasFeature(std::string_view name) {
  static const auto flags = [] {
    std::istringstream words(ofProcessor("flags", ""));
    return std::set<std::string, std::less<>>(std::istream_iterator<std::string>(words), {});
  }();
  return flags.contains(name);
}

const std::string &processorName() {
  static const std::string name = ofProcessor("model name", "CPU");
  return name;
}

uint64_t memoryBytes() {
  uint64_t bytes = uint64_t(sysconf(_SC_PHYS_PAGES)) * uint64_t(sysconf(_SC_PAGESIZE));
  for (const char *path :
       {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream file(path); file >> limit && limit > 0)
      bytes = std::min(bytes, limit);
  }
  return bytes;
}

Result<void> checkKernelSet() {
  const char *wanted = std::getenv("LMC_CPU_ISA");
  if (!wanted || !*wanted)
    return {};
  std::vector<std::string_view> names;
  for (const KernelSet *set : kernelSets())
    names.push_back(set->name);
  if (std::find(names.begin(), names.end(), wanted) != names.end())
    return {};
  return userError("LMC_CPU_ISA={}: the CPU's kernels exist for {} here", wanted,
                   fmt::join(names, ", "));
}

int threadCount(int requested) {
  if (requested > 0)
    return requested;
  if (const char *set = std::getenv("OMP_NUM_THREADS"))
    if (int threads = std::atoi(set); threads > 0)
      return threads;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    return std::max(1, CPU_COUNT(&allowed));
  return std::max(1, int(std::thread::hardware_concurrency()));
}

// Returns the clock frequency in Hz. Times a chain of dependent integer multiplications. Each one
// takes 3 cycles on every x86-64 core since 2008. The fastest of several trials counts.
static double measureClock() {
#if defined(__x86_64__)
  constexpr int kSteps = 100000;
  double best = 0;
  for (int run = 0; run < 12; ++run) {
    uint64_t value = 3;
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i)
      asm volatile("imul %0, %0\n\timul %0, %0\n\timul %0, %0\n\timul %0, %0" : "+r"(value));
    std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    best = std::max(best, 12.0 * kSteps / spent.count());
  }
  return best;
#else
  return 0;
#endif
}

PeakSpeed peakSpeed(Storage compute, int threads) {
  static const double clock = measureClock();
  if (clock <= 0)
    return {0, "unknown on this processor"};
  double perCycle = 8; // f32 FLOPs: with SSE, 4 lanes each add and multiply once
  const char *by = "SSE";
#if defined(__x86_64__)
  const std::string_view set = kernelSet().name;
  const bool avx512 = set.starts_with("x86-64-v4");
  if (avx512) {
    perCycle = 64;
    by = "AVX-512, two units";
  } else if (set == "x86-64-v3") {
    perCycle = 32;
    by = "AVX2 with two FMA units";
  }
  if (compute == Storage::F64)
    perCycle /= 2;
  if (compute == Storage::BF16 && !avx512) {
    by = "f32 arithmetic";
  } else if (compute == Storage::BF16) {
    unsigned a = 0, b = 0, c = 0, d = 0;
    // In CPUID leaf 7, bit 22 of EDX stands for AMX-BF16.
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 22 & 1)) {
      perCycle = 2048;
      by = "AMX bf16";
    } else if (__builtin_cpu_supports("avx512bf16")) {
      perCycle *= 2;
      by = "AVX-512 bf16, two units";
    } else {
      by = "AVX-512 in f32, no bf16 unit";
    }
  }
#endif
  return {threads * clock * perCycle,
          fmt::format("{} threads x {:.2f} GHz (measured) x {:.0f} FLOP/cycle ({})", threads,
                      clock * 1e-9, perCycle, by)};
}

} // namespace lmc::cpu
