// Timing CPU kernels: what the speed measurements of this folder share.
#pragma once

#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/Gemm.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

namespace lmc::bench {

struct Timing {
  double best = 0, median = 0; // seconds
};

// `clock` CLOCK_THREAD_CPUTIME_ID counts the time of the calling thread alone: for work on
// one thread, on a machine that others use too.
inline Timing measure(int runs, const std::function<void()> &work,
                      clockid_t clock = CLOCK_MONOTONIC) {
  auto now = [clock] {
    timespec time{};
    clock_gettime(clock, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  std::vector<double> seconds;
  for (int run = 0; run < runs; ++run) {
    double start = now();
    work();
    seconds.push_back(now() - start);
  }
  std::sort(seconds.begin(), seconds.end());
  return {seconds.front(), seconds[seconds.size() / 2]};
}

// Values in [-1, 1], in either type.
inline void fillRandom(cpu::AlignedMemory &memory, cpu::Storage storage, int64_t elements) {
  const int64_t width = cpu::elementBytes(storage);
  memory.reserve(elements * width);
  uint32_t state = 1;
  for (int64_t i = 0; i < elements; ++i) {
    state = state * 1664525u + 1013904223u;
    float value = float(int32_t(state)) / 2147483648.0f;
    double wide = value;
    if (storage == cpu::Storage::BF16)
      std::memcpy(memory.at(i * width), reinterpret_cast<char *>(&value) + 2, 2);
    else if (storage == cpu::Storage::F32)
      std::memcpy(memory.at(i * width), &value, 4);
    else
      std::memcpy(memory.at(i * width), &wide, 8);
  }
}

} // namespace lmc::bench
