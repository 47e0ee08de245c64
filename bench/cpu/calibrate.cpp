// Measures this machine and writes its device spec (docs/devices.md), in under a minute:
//
//   lmc-calibrate [-o my-cpu.toml] [--threads=N]
//
// What is fitted, of the models in compiler/cost/Roofline.cpp:
//
//   memory     triad a[i] = b[i] + s c[i] over 384 MiB, and over half of the last cache
//   vector     SwiGLU, counted as the compiler counts a generated kernel's operations
//   launch     an empty parallel region
//   gemm       the three forms of a training step (forward, and the gradients of input and
//              weight) at two depths: seconds = 2 m n (k + fixed_depth) / sustained
//   attention  two lengths: rate = full rate * seq / (seq + half length)
//
// Other programs on the machine slow it down at times. So what threads do not share is measured
// on one of them, in its own time, and counted once per thread; and every number is that of
// the fastest of many runs.
#include "bench/Measure.h"
#include "compiler/cost/DeviceSpec.h"
#include "ground/support/Signals.h"
#include "runtime/device/cpu/CpuMachine.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <omp.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>

using namespace lmc::cost;
using namespace lmc::cpu;
using lmc::DataType;
using lmc::bench::fillRandom;
using lmc::bench::measure;

// Seconds of the fastest run, of this thread's own time.
static double ownSeconds(int runs, const std::function<void()> &work) {
  return measure(runs, work, CLOCK_THREAD_CPUTIME_ID).best;
}

#if defined(__x86_64__)
#define CLONES                                                                                     \
  __attribute__((noinline, target_clones("default", "arch=haswell", "arch=skylake-avx512")))
#else
#define CLONES __attribute__((noinline))
#endif

CLONES static void triad(float *a, const float *b, const float *c, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    a[i] = b[i] + 3.0f * c[i];
}

// Seconds of a triad whose three arrays have `bytes` in all.
static double triadSeconds(int64_t bytes, int threads, int runs) {
  int64_t n = bytes / 12 / threads;
  AlignedMemory memory;
  memory.reserve(12 * n * threads);
  auto *base = reinterpret_cast<float *>(memory.data());
  auto pass = [&] {
#pragma omp parallel num_threads(threads)
    {
      float *a = base + omp_get_thread_num() * 3 * n;
      triad(a, a + n, a + 2 * n, n);
    }
  };
  pass(); // touches the pages where they will be used
  return measure(runs, [&] { pass(); }).best;
}

// Of the first processor; 0 when the system does not say. (sysconf adds up all sockets.)
static int64_t lastCacheBytes() {
  int64_t kibibytes = 0;
  std::ifstream("/sys/devices/system/cpu/cpu0/cache/index3/size") >> kibibytes;
  return kibibytes << 10;
}

// silu(x) * u with e^-x as 2^n by a polynomial, as generated kernels compute it: the
// compiler counts 5 operations an element (negation, exp, sum, quotient, product).
CLONES static void swiglu(float *y, const float *x, const float *u, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    float scaled = x[i] * -1.44269504f;
    float shifted = scaled + 12582912.0f; // 1.5 * 2^23: rounds
    float f = scaled - (shifted - 12582912.0f);
    float p = 0.000154f * f + 0.001339f;
    p = p * f + 0.009618f;
    p = p * f + 0.055503f;
    p = p * f + 0.240227f;
    p = p * f + 0.693147f;
    p = p * f + 1.0f;
    int32_t bits = (std::bit_cast<int32_t>(shifted) - 0x4b400000 + 127) << 23;
    y[i] = x[i] / (1.0f + p * std::bit_cast<float>(bits)) * u[i];
  }
}

// Operations per second of one thread, in the first-level cache.
static double vectorFlops() {
  constexpr int64_t n = 2048;
  constexpr int kRepeats = 100;
  alignas(64) static float x[n], u[n], y[n];
  for (int64_t i = 0; i < n; ++i) {
    x[i] = 4 - float(i) * 0.004f;
    u[i] = 1;
  }
  double best = ownSeconds(80, [&] {
    for (int i = 0; i < kRepeats; ++i)
      swiglu(y, x, u, n);
  });
  return 5.0 * n * kRepeats / best;
}

static double launchSeconds(int threads) {
  constexpr int kRegions = 200;
  return measure(60,
                 [&] {
                   for (int region = 0; region < kRegions; ++region) {
#pragma omp parallel for num_threads(threads) schedule(static)
                     for (int i = 0; i < threads; ++i)
                       asm volatile("" ::: "memory");
                   }
                 })
             .best /
         kRegions;
}

struct GemmFit {
  double sustained = 0, fixedDepth = 0;
};

static GemmFit fitGemm(Storage storage, GemmCache &cache) {
  const int64_t m = 512, n = 512, depths[2] = {64, 1024};
  AlignedMemory a, b, d;
  fillRandom(a, storage, m * depths[1]);
  fillRandom(b, storage, n * depths[1]);
  d.reserve(m * n * 8);
  double seconds[2] = {0, 0}; // of the three forms together
  for (int i = 0; i < 2; ++i)
    for (auto [transposeA, transposeB] : {std::pair{false, true}, {false, false}, {true, false}}) {
      bool weight = transposeA;
      Storage output = weight && storage == Storage::BF16 ? Storage::F32 : storage;
      GemmShape shape{m, n, depths[i], transposeA, transposeB, weight, false, storage, output};
      auto gemm = cache.find(shape);
      if (!gemm) {
        fmt::print(stderr, "lmc-calibrate: error: {}\n", gemm.error().message);
        std::exit(1);
      }
      seconds[i] +=
          ownSeconds(i ? 40 : 100, [&] { (*gemm)->run(a.data(), b.data(), d.data(), nullptr); });
    }
  double perDepth = (seconds[1] - seconds[0]) / double(depths[1] - depths[0]);
  return {3 * 2 * double(m * n) / perDepth,
          std::max(0.0, seconds[0] / perDepth - double(depths[0]))};
}

struct AttentionFit {
  double rate[2] = {0, 0}, halfLength[2] = {0, 0}; // forward, backward
};

static AttentionFit fitAttention(Storage storage, int64_t headDim) {
  const int64_t heads = 2, lengths[2] = {128, 1024}, tokens = 1024;
  AlignedMemory q, k, v, dout, out, dq, dk, dv, lse, workspace, scratch;
  for (AlignedMemory *operand : {&q, &k, &v, &dout, &out, &dq, &dk, &dv})
    fillRandom(*operand, storage, tokens * heads * headDim);
  lse.reserve(tokens * heads * 8);
  workspace.reserve(tokens * heads * headDim * 8);
  const auto &kernels = kernelSet().attention[int(storage)];
  double measured[2][2]; // [backward][length]
  for (int i = 0; i < 2; ++i) {
    int64_t seq = lengths[i], batch = tokens / seq, pitch = heads * headDim;
    double scale = 0.125;
    AttentionArgs args{q.data(), k.data(), v.data(), out.data(), lse.data(), batch,
                       seq,      heads,    heads,    headDim,    0,          scale,
                       pitch,    pitch,    pitch};
    AttentionGradArgs grad{args,  dout.data(), dq.data(), dk.data(), dv.data(), workspace.data(),
                           pitch, pitch,       pitch};
    int64_t bytes =
        int64_t(std::max(kernels.scratchBytes(args), kernels.gradScratchBytes(grad)) + 63) / 64 *
        64;
    scratch.reserve(bytes);
    auto run = [&](int64_t tasks, auto kernel, const auto &arguments) {
      for (int64_t task = 0; task < tasks; ++task)
        kernel(arguments, task, scratch.data());
    };
    double flops = 4.0 * double(batch * heads * headDim) * double(seq) * double(seq + 1) / 2;
    double forward = ownSeconds(40, [&] { run(kernels.tasks(args), kernels.run, args); });
    double backward = ownSeconds(30, [&] { run(kernels.gradTasks(grad), kernels.gradRun, grad); });
    measured[0][i] = flops / forward;
    measured[1][i] = 2.5 * flops / backward;
  }
  AttentionFit fit;
  for (int way = 0; way < 2; ++way) {
    // 1 / rate = (1 + half / seq) / full, through both lengths.
    double slope = (1 / measured[way][0] - 1 / measured[way][1]) /
                   (1.0 / double(lengths[0]) - 1.0 / double(lengths[1]));
    slope = std::max(0.0, slope);
    double full = 1 / (1 / measured[way][1] - slope / double(lengths[1]));
    fit.rate[way] = full;
    fit.halfLength[way] = slope * full;
  }
  return fit;
}

// Rounds to significant digits: as many as a measurement gives again.
static double rounded(double value, int digits) {
  return std::stod(fmt::format("{:.{}g}", value, digits));
}

int main(int argc, char **argv) {
  lmc::startSignalThread();
  std::string output;
  int requested = 0;
  for (int i = 1; i < argc; ++i) {
    std::string argument = argv[i];
    if (argument == "-o" && i + 1 < argc)
      output = argv[++i];
    else if (argument.starts_with("--threads="))
      requested = std::atoi(argument.c_str() + 10);
    else {
      fmt::print(stderr, "usage: lmc-calibrate [-o my-cpu.toml] [--threads=N]\n");
      return 2;
    }
  }
  int threads = threadCount(requested);
  omp_set_num_threads(threads);

  std::string stem = output.substr(output.find_last_of('/') + 1);
  stem = stem.substr(0, stem.rfind(".toml"));
  DeviceSpec spec;
  SpecComments comments;
  spec.name = stem.empty() ? "cpu" : stem;
  spec.description =
      fmt::format("{}, {} thread{}", processorName(), threads, threads == 1 ? "" : "s");
  spec.arch = "cpu";

  const int64_t large = 384 << 20;
  spec.memoryBytes = memoryBytes();
  comments["memory.bytes"] = "physical, or the control group's limit";
  spec.reserveBytes = uint64_t(1) << 30;
  comments["memory.reserve"] = "the system and the programs: a guess";
  spec.memoryBandwidth = rounded(double(large) / triadSeconds(large, threads, 31), 3);
  comments["memory.bandwidth"] = "triad over 384 MiB";
  comments["memory.reachable"] = "the triad reached it";
  if (int64_t cache = lastCacheBytes(); cache > 0) {
    double inside = triadSeconds(cache / 2 / threads, 1, 60);
    spec.cacheBytes = uint64_t(cache / 2);
    comments["memory.cache"] = fmt::format("half of the last level's {} MiB", cache >> 20);
    spec.cacheBandwidth = rounded(threads * double(cache / 2 / threads) / inside, 3);
    comments["memory.cache_bandwidth"] = "triad over as much";
  }

  const struct {
    const char *name;
    Storage storage;
    DataType type;
  } dtypes[] = {{"bf16", Storage::BF16, DataType::BF16},
                {"f32", Storage::F32, DataType::F32},
                {"f64", Storage::F64, DataType::F64}};
  comments["peak"] = "threads x clock x what the instructions can start";
  for (const auto &dtype : dtypes) {
    PeakSpeed peak = peakSpeed(dtype.storage, threads);
    spec.peak[size_t(dtype.type)] = rounded(peak.flops, 4);
    comments[fmt::format("peak.{}", dtype.name)] = peak.source;
  }
  spec.vectorFlops = rounded(threads * vectorFlops(), 3);
  comments["vector.flops"] = "5 per element of a SwiGLU in the first cache";
  spec.launchSeconds = rounded(launchSeconds(threads), 2);
  comments["launch.seconds"] = "an empty parallel region";

  omp_set_num_threads(1); // the library's own loops too
  GemmCache cache(1);
  for (const auto &dtype : dtypes) {
    GemmFit fit = fitGemm(dtype.storage, cache);
    const PackedGemmKernels &packed = kernelSet().gemm[int(dtype.storage)];
    spec.gemm[size_t(dtype.type)] = {rounded(threads * fit.sustained, 4), packed.panelRows,
                                     packed.panelColumns, threads, std::round(fit.fixedDepth)};
    comments[fmt::format("gemm.{}", dtype.name)] = "512 x 512, depths of 64 and 1024";
  }
  for (const auto &dtype : dtypes)
    for (int64_t headDim : {32, 64, 128}) {
      if (dtype.storage == Storage::F64 && headDim != 64)
        continue;
      AttentionFit fit = fitAttention(dtype.storage, headDim);
      comments[fmt::format("attention.{}", spec.attention.size())] =
          "2 heads, lengths of 128 and 1024";
      spec.attention.push_back({dtype.type, headDim, rounded(threads * fit.rate[0], 4),
                                std::round(fit.halfLength[0]), rounded(threads * fit.rate[1], 4),
                                std::round(fit.halfLength[1])});
    }

  const std::time_t now = std::time(nullptr);
  const std::string text = deviceSpecToml(
      spec,
      fmt::format("# Measured by lmc-calibrate on {:%Y-%m-%d}: {}, kernels {}.\n"
                  "# SI units: bytes/s, FLOP/s, seconds. The fastest of many short runs.\n",
                  fmt::gmtime(now), spec.description, kernelSet().name),
      comments);

  if (output.empty()) {
    fmt::print("{}", text);
    return 0;
  }
  std::FILE *file = std::fopen(output.c_str(), "w");
  if (!file || std::fwrite(text.data(), 1, text.size(), file) != text.size() ||
      std::fclose(file) != 0) {
    fmt::print(stderr, "lmc-calibrate: error: cannot write {}\n", output);
    return 1;
  }
  fmt::print("{} written; use it with [target] spec = \"{}\"\n", output, output);
  return 0;
}
