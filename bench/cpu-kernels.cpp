// Speed of the CPU's kernels on the shapes of models/configs/llama-124m.toml (hidden size 768, MLP
// 2048, vocabulary 50304, 2048 tokens; 1024 at a time in the head), in GFLOP/s:
//
//   lmc-bench-kernels [threads] [--json=f32|bf16]
//
// With --json it prints only the matrix products of one dtype, one JSON object per line. Every
// figure is that of the best of several runs; FLOPs of causal attention count only the scores that
// are needed.
#include "bench/Measure.h"
#include "ground/support/Signals.h"
#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/Gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <string>

using namespace lmc::cpu;

// One thread is timed by its own time, which other programs on the machine hardly change.
static double bestSeconds(int threads, int runs, const std::function<void()> &work) {
  return lmc::bench::measure(runs, work, threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC)
      .best;
}

// `json`: one line of JSON for each figure, instead of text.
static void benchGemm(int threads, Storage storage, bool json) {
  struct Case {
    const char *name;
    int64_t m, n, k;
    bool transposeA, transposeB;
  };
  const Case cases[] = {
      {"QKV forward", 2048, 2304, 768, false, true},
      {"QKV dgrad", 2048, 768, 2304, false, false},
      {"QKV wgrad", 2304, 768, 2048, true, false},
      {"attention output forward", 2048, 768, 768, false, true},
      {"attention output dgrad", 2048, 768, 768, false, false},
      {"attention output wgrad", 768, 768, 2048, true, false},
      {"gate+up forward", 2048, 4096, 768, false, true},
      {"gate+up dgrad", 2048, 768, 4096, false, false},
      {"gate+up wgrad", 4096, 768, 2048, true, false},
      {"down forward", 2048, 768, 2048, false, true},
      {"down dgrad", 2048, 2048, 768, false, false},
      {"down wgrad", 768, 2048, 2048, true, false},
      {"head forward", 1024, 50304, 768, false, true},
      {"head dgrad", 1024, 768, 50304, false, false},
      {"head wgrad", 50304, 768, 1024, true, false},
  };
  GemmCache cache(threads);
  AlignedMemory a, b, d;
  const char *dtype = storage == Storage::F32 ? "f32" : "bf16";
  const PeakSpeed peak = peakSpeed(storage, threads);
  lmc::bench::fillRandom(a, storage, 1024l * 50304);
  lmc::bench::fillRandom(b, storage, 1024l * 50304);
  d.reserve(1024l * 50304 * 4);
  if (!json)
    fmt::print("gemm {}: the peak is {:.1f} GFLOP/s = {}\n", dtype, peak.flops * 1e-9, peak.source);
  for (const Case &c : cases) {
    bool wgrad = c.transposeA;
    GemmShape shape{c.m,          c.n,          c.k,
                    c.transposeA, c.transposeB, wgrad,
                    false,        storage,      wgrad ? Storage::F32 : storage};
    auto libraries = cache.libraries(shape);
    if (!libraries) {
      fmt::print(stderr, "lmc-bench-kernels: {}\n", libraries.error().message);
      std::exit(2);
    }
    for (GemmLibrary library : *libraries) {
      auto gemm = cache.find(shape, library);
      if (!gemm) {
        fmt::print(stderr, "lmc-bench-kernels: {}\n", gemm.error().message);
        std::exit(2);
      }
      int runs = int(std::clamp(4e11 / shape.flops(), 3.0, 20.0));
      double seconds =
          bestSeconds(threads, runs, [&] { (*gemm)->run(a.data(), b.data(), d.data(), nullptr); });
      const double rate = shape.flops() / seconds;
      if (json)
        fmt::print("{{\"dtype\": \"{}\", \"case\": \"{}\", \"m\": {}, \"n\": {}, \"k\": {}, "
                   "\"library\": \"{}\", \"gflops\": {:.1f}, \"peak_gflops\": {:.1f}}}\n",
                   dtype, c.name, c.m, c.n, c.k, nameOf(library), rate * 1e-9, peak.flops * 1e-9);
      else
        fmt::print("gemm {:4} {:24} {:5} x {:5} x {:5}  {:12} {:7.1f} GFLOP/s {:4.0f}%\n", dtype,
                   c.name, c.m, c.n, c.k, nameOf(library), rate * 1e-9, 100 * rate / peak.flops);
    }
  }
}

static void benchAttention(int threads) {
  const int64_t batch = 8, seq = 512, heads = 12, headDim = 64, pitch = heads * headDim;
  const int64_t elements = batch * seq * heads * headDim;
  for (Storage storage : {Storage::F32, Storage::BF16}) {
    AlignedMemory q, k, v, dout, out, dq, dk, dv, lse, workspace, scratch;
    for (AlignedMemory *operand : {&q, &k, &v, &dout, &out, &dq, &dk, &dv})
      lmc::bench::fillRandom(*operand, storage, elements);
    lse.reserve(batch * seq * heads * 4);
    workspace.reserve(elements * 4);
    AttentionArgs args{q.data(), k.data(), v.data(), out.data(), lse.data(), batch, seq,  heads,
                       heads,    headDim,  0,        0.125,      pitch,      pitch, pitch};
    AttentionGradArgs grad{args,  dout.data(), dq.data(), dk.data(), dv.data(), workspace.data(),
                           pitch, pitch,       pitch};
    for (const KernelSet *set : kernelSets()) {
      const auto &kernels = set->attention[int(storage)];
      int64_t bytes =
          int64_t(std::max(kernels.scratchBytes(args), kernels.gradScratchBytes(grad)) + 63) / 64 *
          64;
      scratch.reserve(bytes * threads);
      auto run = [&](int64_t tasks, auto kernel, const auto &arguments) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t task = 0; task < tasks; ++task)
          kernel(arguments, task, scratch.at(omp_get_thread_num() * bytes));
      };
      double forward =
          bestSeconds(threads, 10, [&] { run(kernels.tasks(args), kernels.run, args); });
      double backward =
          bestSeconds(threads, 10, [&] { run(kernels.gradTasks(grad), kernels.gradRun, grad); });
      double flops = 2.0 * double(batch * heads) * double(seq * (seq + 1) / 2) * 2 * headDim;
      fmt::print("attention {:4} {:10} forward {:6.1f} ms {:6.1f} GFLOP/s, backward {:6.1f} ms "
                 "{:6.1f} GFLOP/s\n",
                 storage == Storage::F32 ? "f32" : "bf16", set->name, forward * 1e3,
                 flops / forward * 1e-9, backward * 1e3, 2.5 * flops / backward * 1e-9);
    }
  }
}

int main(int argc, char **argv) {
  lmc::startSignalThread();
  std::string dtype; // of --json
  int threads = omp_get_max_threads();
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument.starts_with("--json="))
      dtype = argument.substr(7);
    else
      threads = std::atoi(argv[i]);
  }
  if (threads < 1 || (!dtype.empty() && dtype != "f32" && dtype != "bf16")) {
    fmt::print(stderr, "usage: lmc-bench-kernels [threads] [--json=f32|bf16]\n");
    return 2;
  }
  omp_set_num_threads(threads);
  if (!dtype.empty()) {
    benchGemm(threads, dtype == "f32" ? Storage::F32 : Storage::BF16, /*json=*/true);
    return 0;
  }
  fmt::print("{} threads, kernels {}\n", threads, kernelSet().name);
  benchAttention(threads);
  for (Storage storage : {Storage::F32, Storage::BF16})
    benchGemm(threads, storage, /*json=*/false);
}
