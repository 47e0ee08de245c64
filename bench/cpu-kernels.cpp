// Speed of the CPU's kernels on the shapes of a 124M-parameter Llama (hidden
// 768, MLP 2048, vocabulary 50304, 4096 tokens), in GFLOP/s:
//
//   lmc-bench-kernels [threads]
//
// Every line is the best of several runs; FLOPs of causal attention count only
// the scores that are needed.
#include "bench/Measure.h"
#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/Gemm.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

using namespace lmc::cpu;

static double bestSeconds(int runs, const std::function<void()> &work) {
  return lmc::bench::measure(runs, work).best;
}

static void benchGemm(int threads) {
  struct Case {
    const char *name;
    int64_t m, n, k;
    bool transposeA, transposeB;
  };
  const Case cases[] = {
      {"attention forward", 4096, 768, 768, false, true},
      {"attention dgrad", 4096, 768, 768, false, false},
      {"attention wgrad", 768, 768, 4096, true, false},
      {"mlp forward", 4096, 2048, 768, false, true},
      {"mlp dgrad", 4096, 768, 2048, false, false},
      {"mlp wgrad", 2048, 768, 4096, true, false},
      {"head forward", 1024, 50304, 768, false, true},
      {"head dgrad", 1024, 768, 50304, false, false},
      {"head wgrad", 50304, 768, 1024, true, false},
  };
  GemmCache cache(threads);
  AlignedMemory a, b, d;
  for (Storage storage : {Storage::F32, Storage::BF16}) {
    lmc::bench::fillRandom(a, storage, 1024l * 50304);
    lmc::bench::fillRandom(b, storage, 1024l * 50304);
    d.reserve(1024l * 50304 * 4);
    for (const Case &c : cases) {
      bool wgrad = c.transposeA;
      GemmShape shape{c.m,          c.n,          c.k,
                      c.transposeA, c.transposeB, wgrad,
                      false,        storage,      wgrad ? Storage::F32 : storage};
      for (GemmLibrary library : {GemmLibrary::OneDNN, GemmLibrary::Packed}) {
        auto gemm = cache.find(shape, library);
        if (!gemm) {
          fmt::print("gemm {:4} {:18} {}\n", storage == Storage::F32 ? "f32" : "bf16", c.name,
                     gemm.error().message);
          continue;
        }
        double flops = 2.0 * c.m * c.n * c.k;
        int runs = int(std::clamp(4e11 / flops, 2.0, 20.0));
        if (library == GemmLibrary::OneDNN && storage == Storage::BF16)
          runs = 1;
        double seconds =
            bestSeconds(runs, [&] { (*gemm)->run(a.data(), b.data(), d.data(), nullptr); });
        fmt::print("gemm {:4} {:18} {:5} x {:5} x {:5}  {:16} {:7.1f} GFLOP/s\n",
                   storage == Storage::F32 ? "f32" : "bf16", c.name, c.m, c.n, c.k,
                   (*gemm)->implementation(), flops / seconds * 1e-9);
      }
    }
  }
}

static void benchAttention(int threads) {
  const int64_t batch = 8, seq = 512, heads = 12, headDim = 64, pitch = heads * headDim;
  const int64_t elements = batch * seq * heads * headDim;
  int sets = 0;
  const KernelSet *const *all = kernelSets(sets);
  for (Storage storage : {Storage::F32, Storage::BF16}) {
    AlignedMemory q, k, v, dout, out, dq, dk, dv, lse, workspace, scratch;
    for (AlignedMemory *operand : {&q, &k, &v, &dout, &out, &dq, &dk, &dv})
      lmc::bench::fillRandom(*operand, storage, elements);
    lse.reserve(batch * seq * heads * 4);
    workspace.reserve(elements * 4);
    AttentionArgs args{q.data(), k.data(), v.data(), out.data(), lse.data(), batch,
                       seq,      heads,    heads,    headDim,    0,          0.125,
                       pitch,    pitch,    pitch};
    AttentionGradArgs grad{q.data(),    k.data(),  v.data(),  out.data(), lse.data(),
                           dout.data(), dq.data(), dk.data(), dv.data(),  workspace.data(),
                           batch,       seq,       heads,     heads,      headDim,
                           0,           0.125,     pitch,     pitch,      pitch,
                           pitch,       pitch,     pitch};
    for (int set = 0; set < sets; ++set) {
      const auto &kernels = all[set]->attention[int(storage)];
      int64_t bytes =
          int64_t(std::max(kernels.scratchBytes(args), kernels.gradScratchBytes(grad)) + 63) / 64 *
          64;
      scratch.reserve(bytes * threads);
      auto run = [&](int64_t tasks, auto kernel, const auto &arguments) {
#pragma omp parallel for num_threads(threads) schedule(dynamic)
        for (int64_t task = 0; task < tasks; ++task)
          kernel(arguments, task, scratch.at(omp_get_thread_num() * bytes));
      };
      double forward = bestSeconds(10, [&] { run(kernels.tasks(args), kernels.run, args); });
      double backward =
          bestSeconds(10, [&] { run(kernels.gradTasks(grad), kernels.gradRun, grad); });
      double flops = 2.0 * double(batch * heads) * double(seq * (seq + 1) / 2) * 2 * headDim;
      fmt::print("attention {:4} {:10} forward {:6.1f} ms {:6.1f} GFLOP/s, backward {:6.1f} ms "
                 "{:6.1f} GFLOP/s\n",
                 storage == Storage::F32 ? "f32" : "bf16", all[set]->name, forward * 1e3,
                 flops / forward * 1e-9, backward * 1e3, 2.5 * flops / backward * 1e-9);
    }
  }
}

int main(int argc, char **argv) {
  int threads = argc > 1 ? std::atoi(argv[1]) : omp_get_max_threads();
  if (threads < 1) {
    fmt::print(stderr, "usage: lmc-bench-kernels [threads]\n");
    return 2;
  }
  omp_set_num_threads(threads);
  fmt::print("{} threads, kernels {}\n", threads, kernelSet().name);
  benchAttention(threads);
  benchGemm(threads);
}
