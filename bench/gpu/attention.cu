// Flash attention on a GPU: every tensor core variant of compiler/targets/cuda/templates/AttentionTiles.def,
// on the shapes of llama1b, Mistral-7B and Llama 3 8B, with heads of 96 and 256, and with heads of 80
// and 112 in larger tiles, checked against the plain kernels and timed.
//
//   nvcc -O2 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DLMC_WARPGROUPS=1 -DLMC_SHAPE=0 -I .
//        -I INC -I compiler/extract/text bench/gpu/attention.cu -o attention
//
// where INC/lmc is compiler/targets/cuda/device, LMC_SHAPE is a row of the list at the end, and
// LMC_WARPGROUPS is 1 for sm_90a alone.
//
// Prints a line of JSON per variant: milliseconds of the median of ten runs alone, and of 21 in heat
// (compiler/extract/text/heat.cu), TFLOP/s by the usual count (scores that the mask leaves: 4 head_dim FLOPs each forward, 10 backward, whatever the
// kernel computes), and the relative L2 error. Before each run of a variant, what it writes is
// filled with 0xff bytes. A last variant launches nothing, and must be found wrong. Exits with 1 if
// an error is above 2%.
#include "lmc/attention_backward.cuh"
#include "lmc/attention_backward_groups.cuh"
#include "lmc/attention_forward.cuh"
#include "lmc/attention_forward_groups.cuh"
#include "lmc/attention_plain.cuh"
#include "lmc/random.cuh"

#include "heat.cu"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

// 1 if the code is for sm_90a, which has wgmma.
#ifndef LMC_WARPGROUPS
#define LMC_WARPGROUPS 0
#endif

using lmc::bf16;

#define CHECK(call)                                                                                \
  do {                                                                                             \
    cudaError_t error = call;                                                                      \
    if (error != cudaSuccess) {                                                                    \
      std::fprintf(stderr, "attention: error: %s: %s\n", #call, cudaGetErrorString(error));        \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

// Fills `to` with standard normals; `count` is a multiple of 4.
__global__ void drawNormals(bf16 *to, size_t count, unsigned stream) {
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 4;
       i += size_t(gridDim.x) * blockDim.x) {
    double z[4];
    lmc::normals(1, stream, i, z);
    for (int j = 0; j < 4; ++j)
      to[4 * i + j] = lmc::toBf16(float(z[j]));
  }
}

template <int Batch, int Seq, int HeadDim, int Window> struct ShapeOf {
  static constexpr int batch = Batch, seq = Seq, heads = 32, kvHeads = 8, headDim = HeadDim;
  static constexpr int window = Window;
  static constexpr bool documents = false, rope = false, largest = false;
  static constexpr int qPitch = (heads + 2 * kvHeads) * headDim, kPitch = qPitch, vPitch = qPitch;
  static constexpr int outPitch = heads * headDim, doutPitch = outPitch;
  static constexpr int dqPitch = qPitch, dkPitch = qPitch, dvPitch = qPitch;
  static constexpr float scale = HeadDim == 64    ? 0.125f
                                 : HeadDim == 256 ? 0.0625f
                                 : HeadDim == 96  ? 0.10206207261596577f
                                                 : 0.08838834764831845f;
};
// Returns what tileHeadDim of compiler/targets/cuda/templates/AttentionTemplates.h does.
constexpr int tileHeadDim(int headDim) {
  return headDim <= 64 ? 64 : headDim <= 96 ? 96 : headDim <= 128 ? 128 : headDim <= 192 ? 192 : 256;
}
enum class Limits { None, Whole, Causal };
template <int HeadDim, int Queries, int Keys, int Warps, int Stages, bool Registers, int Blocks,
          Limits Except, bool Warpgroups>
struct TileOf {
  // As AttentionTile::isFor.
  template <typename Shape>
  static constexpr bool isFor =
      HeadDim == tileHeadDim(Shape::headDim) &&
      (Except == Limits::None ||
       (Shape::headDim == HeadDim && Shape::seq % Queries == 0 && Shape::seq % Keys == 0 &&
        (Except == Limits::Whole || Shape::window == 0)));
  static constexpr bool warpgroups = Warpgroups, keyRegisters = Registers;
  static constexpr int headDim = HeadDim;
  static constexpr int queries = Queries, keys = Keys, warps = Warps, slots = Stages;
  static constexpr int stages = Stages, together = 64, blocks = Blocks;
  static constexpr bool queryRegisters = Registers;
};
struct PlainTile {
  static constexpr int warps = 8;
};

template <typename Shape, typename Tile>
__global__ void __launch_bounds__(32 * Tile::warps, Tile::blocks)
    forward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse) {
  if constexpr (Tile::warpgroups)
    lmc::attentionForwardGroups<Shape, Tile, Tile::headDim>(q, k, v, nullptr, out, lse, nullptr);
  else
    lmc::attentionForward<Shape, Tile, Tile::headDim>(q, k, v, nullptr, out, lse, nullptr);
}
template <typename Shape, typename Tile>
__global__ void __launch_bounds__(32 * Tile::warps, Tile::blocks)
    gradQueries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out, const float *lse,
                const bf16 *dout, bf16 *dq, float *delta) {
  if constexpr (Tile::warpgroups)
    lmc::attentionGradQueriesGroups<Shape, Tile, Tile::headDim>(q, k, v, out, lse, dout, nullptr,
                                                                nullptr, nullptr, dq, delta,
                                                                nullptr);
  else
    lmc::attentionGradQueries<Shape, Tile, Tile::headDim>(q, k, v, out, lse, dout, nullptr, nullptr,
                                                          nullptr, dq, delta, nullptr);
}
template <typename Shape, typename Tile>
__global__ void __launch_bounds__(32 * Tile::warps, Tile::blocks)
    gradKeys(const bf16 *q, const bf16 *k, const bf16 *v, const float *lse, const bf16 *dout,
             const float *delta, bf16 *dk, bf16 *dv) {
  if constexpr (Tile::warpgroups)
    lmc::attentionGradKeysGroups<Shape, Tile, Tile::headDim>(q, k, v, lse, dout, delta, nullptr,
                                                             nullptr, nullptr, dk, dv, nullptr);
  else
    lmc::attentionGradKeys<Shape, Tile, Tile::headDim>(q, k, v, lse, dout, delta, nullptr, nullptr,
                                                       nullptr, dk, dv, nullptr);
}
template <typename Shape>
__global__ void plainForward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse) {
  lmc::attentionForwardPlain<Shape, PlainTile>(q, k, v, nullptr, out, lse, nullptr);
}
template <typename Shape>
__global__ void plainGradQueries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out,
                                 const float *lse, const bf16 *dout, bf16 *dq, float *delta) {
  lmc::attentionGradQueriesPlain<Shape, PlainTile>(q, k, v, out, lse, dout, nullptr, nullptr,
                                                   nullptr, dq, delta, nullptr);
}
template <typename Shape>
__global__ void plainGradKeys(const bf16 *q, const bf16 *k, const bf16 *v, const float *lse,
                              const bf16 *dout, const float *delta, bf16 *dk, bf16 *dv) {
  lmc::attentionGradKeysPlain<Shape, PlainTile>(q, k, v, lse, dout, delta, nullptr, nullptr,
                                                nullptr, dk, dv, nullptr);
}

// One shape's tensors on the device, and the plain kernels' results.
template <typename Shape> struct Bench {
  static constexpr size_t tokens = size_t(Shape::batch) * Shape::seq;
  static constexpr size_t width = size_t(Shape::heads) * Shape::headDim;
  static constexpr size_t kvWidth = size_t(Shape::kvHeads) * Shape::headDim;
  bf16 *qkv, *out, *dout, *dqkv;
  float *lse, *delta;
  std::vector<bf16> expectedOut, expectedGrad;
  std::vector<float> expectedLse, expectedDelta;
  bool good = true;

  template <typename T> static T *allocate(size_t count) {
    void *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    CHECK(cudaMemset(memory, 0, count * sizeof(T)));
    return static_cast<T *>(memory);
  }
  static bf16 *randomOf(size_t count, unsigned seed) {
    bf16 *memory = allocate<bf16>(count);
    drawNormals<<<1024, 256>>>(memory, count, seed);
    CHECK(cudaGetLastError());
    return memory;
  }
  template <typename T> static std::vector<T> fetch(const T *from, size_t count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
  template <typename T> static void send(T *to, const std::vector<T> &values) {
    CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
  }

  Bench()
      : qkv(randomOf(tokens * Shape::qPitch, 1)), out(allocate<bf16>(tokens * width)),
        dout(randomOf(tokens * width, 2)), dqkv(allocate<bf16>(tokens * Shape::qPitch)),
        lse(allocate<float>(tokens * Shape::heads)), delta(allocate<float>(tokens * Shape::heads)) {
    using Plan = lmc::AttentionPlain<Shape, PlainTile>;
    CHECK(cudaFuncSetAttribute(plainForward<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    CHECK(cudaFuncSetAttribute(plainGradQueries<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    CHECK(cudaFuncSetAttribute(plainGradKeys<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    plainForward<Shape><<<Plan::rowBlocks, 256, Plan::sharedBytes>>>(q(), k(), v(), out, lse);
    plainGradQueries<Shape>
        <<<Plan::rowBlocks, 256, Plan::sharedBytes>>>(q(), k(), v(), out, lse, dout, dqkv, delta);
    plainGradKeys<Shape><<<Plan::gradKeysBlocks, 256, Plan::sharedBytes>>>(
        q(), k(), v(), lse, dout, delta, dqkv + width, dqkv + width + kvWidth);
    CHECK(cudaDeviceSynchronize());
    expectedOut = fetch(out, tokens * width);
    expectedGrad = fetch(dqkv, tokens * Shape::qPitch);
    expectedLse = fetch(lse, tokens * Shape::heads);
    expectedDelta = fetch(delta, tokens * Shape::heads);
  }
  // Fills all results with 0xff bytes, which are NaN.
  void poison() {
    CHECK(cudaMemset(out, 0xff, tokens * width * sizeof(bf16)));
    CHECK(cudaMemset(dqkv, 0xff, tokens * Shape::qPitch * sizeof(bf16)));
    CHECK(cudaMemset(lse, 0xff, tokens * Shape::heads * sizeof(float)));
    CHECK(cudaMemset(delta, 0xff, tokens * Shape::heads * sizeof(float)));
  }
  // Sets what the gradients' kernels read to the plain kernels' results, and poisons the rest.
  void prepareGradient(bool needsDelta) {
    poison();
    send(out, expectedOut);
    send(lse, expectedLse);
    if (needsDelta)
      send(delta, expectedDelta);
  }
  ~Bench() {
    for (void *memory :
         {(void *)qkv, (void *)out, (void *)dout, (void *)dqkv, (void *)lse, (void *)delta})
      cudaFree(memory);
  }
  const bf16 *q() const { return qkv; }
  const bf16 *k() const { return qkv + width; }
  const bf16 *v() const { return qkv + width + kvWidth; }

  static double visibleScores() {
    double seq = Shape::seq, window = Shape::window ? std::min(Shape::window, Shape::seq) : seq;
    return double(Shape::batch) * Shape::heads *
           (window * (window + 1) / 2 + (seq - window) * window);
  }
  // Returns the relative L2 error of columns [first, first + columns) of rows that are `pitch` apart.
  static double errorOf(const std::vector<float> &got, const std::vector<float> &expected) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += (double(got[i]) - expected[i]) * (double(got[i]) - expected[i]);
      norm += double(expected[i]) * expected[i];
    }
    return std::sqrt(error / norm);
  }
  static double errorOf(const std::vector<bf16> &got, const std::vector<bf16> &expected,
                        size_t pitch, size_t first, size_t columns) {
    auto real = [](bf16 x) {
      unsigned word = unsigned(x.bits) << 16;
      float value;
      std::memcpy(&value, &word, 4);
      return double(value);
    };
    double error = 0, norm = 0;
    for (size_t row = 0; row < got.size() / pitch; ++row)
      for (size_t c = first; c < first + columns; ++c) {
        double a = real(got[row * pitch + c]), b = real(expected[row * pitch + c]);
        error += (a - b) * (a - b);
        norm += b * b;
      }
    return std::sqrt(error / norm);
  }
  // Times `launch`. `flopsPerScore` counts the FLOPs per visible score and column of a head, and
  // `share` is the part of them that this kernel computes. `error` compares the results.
  template <typename Launch, typename Error>
  void measure(const std::string &what, double flopsPerScore, double share, Launch launch,
               Error error, bool mustBeRight = true) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times;
    const double began = host::now();
    for (int run = 0; run < 12; ++run) {
      CHECK(cudaEventRecord(begin));
      launch();
      CHECK(cudaGetLastError());
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      float milliseconds;
      CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
      if (run >= 2)
        times.push_back(milliseconds);
    }
    std::sort(times.begin(), times.end());
    host::printPhase("alone", began);
    const double median = times[times.size() / 2], wrong = error();
    const double inHeat = mustBeRight ? host::millisecondsInHeat(launch) : median;
    const double flops = share * flopsPerScore * Shape::headDim * visibleScores();
    const bool isRight = wrong < 0.02; // false for NaN
    good = good && isRight == mustBeRight;
    std::printf(
        "{%s, \"ms\": %.4f, \"tflops\": %.1f, \"heat_ms\": %.4f, \"heat_tflops\": %.1f, "
        "\"error\": %s, \"right\": %s}\n",
        what.c_str(), median, flops / median / 1e9, inHeat, flops / inHeat / 1e9,
        wrong == wrong ? std::to_string(wrong).c_str() : "null", isRight ? "true" : "false");
  }
  template <typename Tile>
  static std::string nameOf(const char *kernel, int sharedBytes, const void *function) {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, function));
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32 * Tile::warps,
                                                        sharedBytes));
    static const char *const names[] = {"", "r", "w", "wr"}; // of warpgroups; with rows in registers
    char text[256];
    std::snprintf(text, sizeof text,
                  "\"kernel\": \"%s\", \"tile\": \"%dx%d%s\", \"registers\": %d, "
                  "\"local_bytes\": %d, \"blocks_per_sm\": %d",
                  kernel, Tile::queries, Tile::keys, names[Tile::queryRegisters + 2 * Tile::warpgroups],
                  attributes.numRegs, int(attributes.localSizeBytes), blocks);
    return text;
  }
  template <typename Tile> void timeForward() {
    using Plan = std::conditional_t<Tile::warpgroups,
                                    lmc::AttentionForwardGroups<Shape, Tile, Tile::headDim>,
                                    lmc::AttentionForward<Shape, Tile, Tile::headDim>>;
    auto *kernel = forward<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    poison();
    measure(
        nameOf<Tile>("forward", Plan::sharedBytes, (const void *)kernel), 4, 1,
        [&] {
          kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(q(), k(), v(), out, lse);
        },
        [&] { return outError(); });
  }
  // Returns the larger error of out and lse.
  double outError() {
    const double error = errorOf(fetch(out, tokens * width), expectedOut, width, 0, width);
    const double sums = errorOf(fetch(lse, tokens * Shape::heads), expectedLse);
    return error != error || sums != sums ? NAN : std::max(error, sums);
  }
  // Of the 10 FLOPs of both kernels the usual count has, 3 products of 7 are computed here.
  template <typename Tile> void timeGradQueries() {
    using Plan = std::conditional_t<Tile::warpgroups,
                                    lmc::AttentionGradQueriesGroups<Shape, Tile, Tile::headDim>,
                                    lmc::AttentionGradQueries<Shape, Tile, Tile::headDim>>;
    auto *kernel = gradQueries<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    prepareGradient(/*needsDelta=*/false);
    measure(
        nameOf<Tile>("dq", Plan::sharedBytes, (const void *)kernel), 10, 3.0 / 7,
        [&] {
          kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(q(), k(), v(), out, lse,
                                                                        dout, dqkv, delta);
        },
        [&] {
          const double error =
              errorOf(fetch(dqkv, expectedGrad.size()), expectedGrad, Shape::dqPitch, 0, width);
          const double sums = errorOf(fetch(delta, tokens * Shape::heads), expectedDelta);
          return error != error || sums != sums ? NAN : std::max(error, sums);
        });
  }
  template <typename Tile> void timeGradKeys() {
    using Plan = std::conditional_t<Tile::warpgroups,
                                    lmc::AttentionGradKeysGroups<Shape, Tile, Tile::headDim>,
                                    lmc::AttentionGradKeys<Shape, Tile, Tile::headDim>>;
    auto *kernel = gradKeys<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    prepareGradient(/*needsDelta=*/true);
    measure(
        nameOf<Tile>("dk, dv", Plan::sharedBytes, (const void *)kernel), 10, 4.0 / 7,
        [&] {
          kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(
              q(), k(), v(), lse, dout, delta, dqkv + width, dqkv + width + kvWidth);
        },
        [&] {
          return errorOf(fetch(dqkv, expectedGrad.size()), expectedGrad, Shape::dqPitch, width,
                         2 * kvWidth);
        });
  }
  // A launch of nothing leaves the poison, which the comparison must find.
  void testTheComparison() {
    poison();
    measure(
        "\"kernel\": \"nothing\", \"tile\": \"\"", 0, 0, [] {}, [&] { return outError(); },
        /*mustBeRight=*/false);
  }
};

// Runs each variant of the table that is for the shape's head size.
template <typename Shape> bool everyTile() {
  Bench<Shape> bench;
#define LMC_ATTENTION_TILE(Part, HeadDim, Queries, Keys, Warps, Stages, Registers, Blocks, Most,   \
                           Except, Warpgroups)                                                     \
  if constexpr (TileOf<HeadDim, Queries, Keys, Warps, Stages, Registers, Blocks, Limits::Except,   \
                       Warpgroups>::template isFor<Shape> &&                                       \
                (LMC_WARPGROUPS || !Warpgroups))                                                   \
    bench.template time##Part<TileOf<HeadDim, Queries, Keys, Warps, Stages, Registers, Blocks,     \
                                     Limits::Except, Warpgroups>>();
#include "compiler/targets/cuda/templates/AttentionTiles.def"
#undef LMC_ATTENTION_TILE
  bench.testTheComparison();
  return bench.good;
}

// All shapes have 32 heads and 8 key-value heads.
#if LMC_SHAPE == 0 // llama1b, MBS 1
using BenchShape = ShapeOf<1, 2048, 64, 0>;
#elif LMC_SHAPE == 1 // llama1b, MBS 16
using BenchShape = ShapeOf<16, 2048, 64, 0>;
#elif LMC_SHAPE == 2 // heads of 96
using BenchShape = ShapeOf<4, 4096, 96, 0>;
#elif LMC_SHAPE == 3 // heads of 80
using BenchShape = ShapeOf<8, 2048, 80, 0>;
#elif LMC_SHAPE == 4 // heads of 112
using BenchShape = ShapeOf<8, 2048, 112, 0>;
#elif LMC_SHAPE == 5 // Mistral-7B, window of 4096
using BenchShape = ShapeOf<1, 8192, 128, 4096>;
#elif LMC_SHAPE == 6 // Llama 3 8B
using BenchShape = ShapeOf<2, 8192, 128, 0>;
#else                // heads of 256, as Gemma's
using BenchShape = ShapeOf<2, 4096, 256, 0>;
#endif

int main() { return everyTile<BenchShape>() ? 0 : 1; }
