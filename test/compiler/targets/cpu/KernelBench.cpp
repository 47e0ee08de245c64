// Bandwidth of generated kernels on one thread beside memcpy's. Not a test: it is
// built as codegen-bench and asserts nothing.
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <random>

using namespace lmc::codegen;
using namespace lmc::codegen::test;

namespace {

constexpr int kRepeats = 15;

// Of the thread's own time, so that other load disturbs less.
double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

template <typename Body> double medianSeconds(Body body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < kRepeats; ++i) {
    double start = now();
    body();
    seconds.push_back(now() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + kRepeats / 2, seconds.end());
  return seconds[kRepeats / 2];
}

// `sizes`: elements of each argument, inputs first. Counts bytes as the shape does.
void measure(const char *name, const char *text, int64_t rows, int64_t columns,
             std::vector<size_t> sizes, CpuTarget target = {}) {
  Kernel kernel(
      substitute(text, {{"R", std::to_string(rows)}, {"C", std::to_string(columns)}, {"T", "f32"}}),
      target);
  if (!kernel.error().empty()) {
    std::printf("%s: %s\n", name, kernel.error().c_str());
    return;
  }
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<std::vector<float>> storage;
  std::vector<void *> args;
  for (size_t size : sizes) {
    auto &values = storage.emplace_back(size);
    for (float &value : values)
      value = uniform(generator);
    args.push_back(values.data());
  }
  int64_t items = kernel.shape().items, chunk = kernel.shape().chunk;
  double seconds = medianSeconds([&] {
    for (int64_t begin = 0; begin < items; begin += chunk)
      kernel.run(args, begin, std::min(begin + chunk, items));
  });
  double bytes = double(kernel.shape().bytesPerItem) * items;
  std::printf("%-28s %5ld x %5ld  %u bits  %7.3f ms  %6.2f GB/s\n", name, long(rows), long(columns),
              kernel.image().vectorWidth, seconds * 1e3, bytes / seconds / 1e9);
}

} // namespace

int main() {
  for (size_t elements : {size_t(4096) * 768, size_t(4096) * 2048}) {
    std::vector<float> from(elements, 1), to(elements, 2);
    double seconds =
        medianSeconds([&] { std::memcpy(to.data(), from.data(), elements * sizeof(float)); });
    std::printf("%-28s %zu MiB  %6.2f GB/s (read + write)\n", "memcpy",
                elements * sizeof(float) >> 20, 2.0 * elements * sizeof(float) / seconds / 1e9);
  }
  for (int64_t c : {768, 2048}) {
    const int64_t r = 4096;
    size_t n = r * c, rows = r, columns = c;
    measure("residual add + rms norm", kResidualRmsNorm, r, c, {n, n, columns, n, n, rows});
    measure("rms norm gradient", kRmsNormGrad, r, c, {n, n, columns, n});
    measure("swiglu", kSwiglu, r, c, {n, n, n});
    measure("swiglu gradient", kSwigluGrad, r, c, {n, n, n, n, n});
    measure("column sum", kColumnSum, r, c, {n, n, rows, columns, columns});
    measure("adamw", kAdamW, r, c, {n, n, n, n, 1, 1, n, n, n, rows});
  }
  // In the second-level cache: what the arithmetic alone allows.
  measure("swiglu, in cache", kSwiglu, 16, 1024, {16384, 16384, 16384});
  measure("rms norm, in cache", kResidualRmsNorm, 16, 1024, {16384, 16384, 1024, 16384, 16384, 16});
  measure("cross entropy, in cache", kCrossEntropy, 4, 8192, {32768, 4, 1, 32768, 4});
  measure("cross entropy", kCrossEntropy, 512, 32768,
          {size_t(512) * 32768, 512, 1, size_t(512) * 32768, 512});
}
