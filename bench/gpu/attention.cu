// Flash attention on a GPU: every tensor core variant of compiler/targets/cuda/AttentionTiles.def, on
// the shapes of llama1b, Mistral-7B and Llama 3 8B, with heads of 96, and with heads of 80 and 112
// in larger tiles, checked against the plain kernels and timed.
//
//   nvcc -O2 -std=c++17 -arch=native -I . -I INC bench/gpu/attention.cu -o attention
//
// where INC/lmc is compiler/targets/cuda/device.
//
// A line per variant: milliseconds of the best of ten runs, TFLOP/s by the usual count (scores that
// the mask leaves: 4 head_dim FLOPs each forward, 10 backward, whatever the kernel computes), and
// the relative L2 error. Exits with 1 where an error is above 2%.
#include "lmc/attention_backward.cuh"
#include "lmc/attention_forward.cuh"
#include "lmc/attention_plain.cuh"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using lmc::bf16;

#define CHECK(call)                                                                                \
  do {                                                                                             \
    cudaError_t error = call;                                                                      \
    if (error != cudaSuccess) {                                                                    \
      std::fprintf(stderr, "attention: error: %s: %s\n", #call, cudaGetErrorString(error));        \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (false)

template <int Batch, int Seq, int HeadDim, int Window> struct ShapeOf {
  static constexpr int batch = Batch, seq = Seq, heads = 32, kvHeads = 8, headDim = HeadDim;
  static constexpr int window = Window;
  static constexpr bool documents = false, rope = false;
  static constexpr int qPitch = (heads + 2 * kvHeads) * headDim, kPitch = qPitch, vPitch = qPitch;
  static constexpr int outPitch = heads * headDim, doutPitch = outPitch;
  static constexpr int dqPitch = qPitch, dkPitch = qPitch, dvPitch = qPitch;
  static constexpr float scale = HeadDim == 64   ? 0.125f
                                 : HeadDim == 96 ? 0.10206207261596577f
                                                 : 0.08838834764831845f;
};
// As tileHeadDim of compiler/targets/cuda/AttentionTemplates.h.
constexpr int tileHeadDim(int headDim) { return headDim <= 64 ? 64 : headDim <= 96 ? 96 : 128; }
template <int HeadDim, int Queries, int Keys, int Warps, int Stages, bool Registers, int Blocks>
struct TileOf {
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
  lmc::attentionForward<Shape, Tile, Tile::headDim>(q, k, v, nullptr, out, lse);
}
template <typename Shape, typename Tile>
__global__ void __launch_bounds__(32 * Tile::warps, Tile::blocks)
    gradQueries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out, const float *lse,
                const bf16 *dout, bf16 *dq, float *delta) {
  lmc::attentionGradQueries<Shape, Tile, Tile::headDim>(q, k, v, out, lse, dout, nullptr, nullptr,
                                                        nullptr, dq, delta);
}
template <typename Shape, typename Tile>
__global__ void __launch_bounds__(32 * Tile::warps, Tile::blocks)
    gradKeys(const bf16 *q, const bf16 *k, const bf16 *v, const float *lse, const bf16 *dout,
             const float *delta, bf16 *dk, bf16 *dv) {
  lmc::attentionGradKeys<Shape, Tile, Tile::headDim>(q, k, v, lse, dout, delta, nullptr, nullptr,
                                                     nullptr, dk, dv);
}
template <typename Shape>
__global__ void plainForward(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *out, float *lse) {
  lmc::attentionForwardPlain<Shape, PlainTile>(q, k, v, nullptr, out, lse);
}
template <typename Shape>
__global__ void plainGradQueries(const bf16 *q, const bf16 *k, const bf16 *v, const bf16 *out,
                                 const float *lse, const bf16 *dout, bf16 *dq, float *delta) {
  lmc::attentionGradQueriesPlain<Shape, PlainTile>(q, k, v, out, lse, dout, nullptr, nullptr,
                                                   nullptr, dq, delta);
}
template <typename Shape>
__global__ void plainGradKeys(const bf16 *q, const bf16 *k, const bf16 *v, const float *lse,
                              const bf16 *dout, const float *delta, bf16 *dk, bf16 *dv) {
  lmc::attentionGradKeysPlain<Shape, PlainTile>(q, k, v, lse, dout, delta, nullptr, nullptr,
                                                nullptr, dk, dv);
}

// One shape's tensors on the device, and the plain kernels' results.
template <typename Shape> struct Bench {
  static constexpr size_t tokens = size_t(Shape::batch) * Shape::seq;
  static constexpr size_t width = size_t(Shape::heads) * Shape::headDim;
  static constexpr size_t kvWidth = size_t(Shape::kvHeads) * Shape::headDim;
  bf16 *qkv, *out, *dout, *dqkv;
  float *lse, *delta;
  std::vector<bf16> expectedOut, expectedGrad;
  bool good = true;

  template <typename T> static T *allocate(size_t count) {
    void *memory;
    CHECK(cudaMalloc(&memory, count * sizeof(T)));
    CHECK(cudaMemset(memory, 0, count * sizeof(T)));
    return static_cast<T *>(memory);
  }
  static bf16 *randomOf(size_t count, unsigned seed) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    std::vector<bf16> values(count);
    for (bf16 &value : values) {
      float x = normal(generator);
      unsigned word;
      std::memcpy(&word, &x, 4);
      value.bits = (unsigned short)(word >> 16);
    }
    bf16 *memory = allocate<bf16>(count);
    CHECK(cudaMemcpy(memory, values.data(), count * sizeof(bf16), cudaMemcpyHostToDevice));
    return memory;
  }
  static std::vector<bf16> fetch(const bf16 *from, size_t count) {
    std::vector<bf16> values(count);
    CHECK(cudaMemcpy(values.data(), from, count * sizeof(bf16), cudaMemcpyDeviceToHost));
    return values;
  }

  Bench()
      : qkv(randomOf(tokens * Shape::qPitch, 1)), out(allocate<bf16>(tokens * width)),
        dout(randomOf(tokens * width, 2)), dqkv(allocate<bf16>(tokens * Shape::qPitch)),
        lse(allocate<float>(tokens * Shape::heads)), delta(allocate<float>(tokens * Shape::heads)) {
    using Plan = lmc::AttentionPlain<Shape, PlainTile>;
    CHECK(cudaFuncSetAttribute(plainForward<Shape>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    CHECK(cudaFuncSetAttribute(plainGradQueries<Shape>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, Plan::sharedBytes));
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
  }
  ~Bench() {
    for (void *memory : {(void *)qkv, (void *)out, (void *)dout, (void *)dqkv, (void *)lse,
                         (void *)delta})
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
  // Relative L2 error of columns [first, first + columns) of rows that are `pitch` apart.
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
  template <typename Launch>
  void measure(const char *what, double flopsPerScore, double share, Launch launch,
               const bf16 *result, const std::vector<bf16> &expected, size_t pitch, size_t first,
               size_t columns) {
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    float best = 1e30f;
    for (int run = 0; run < 12; ++run) {
      CHECK(cudaEventRecord(begin));
      launch();
      CHECK(cudaGetLastError());
      CHECK(cudaEventRecord(end));
      CHECK(cudaEventSynchronize(end));
      float milliseconds;
      CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
      if (run >= 2)
        best = std::min(best, milliseconds);
    }
    double error = errorOf(fetch(result, expected.size()), expected, pitch, first, columns);
    bool close = error < 0.02;
    good = good && close;
    std::printf("  %-40s %8.3f ms  %6.1f TFLOP/s  error %.2e%s\n", what, best,
                share * flopsPerScore * Shape::headDim * visibleScores() / best / 1e9, error,
                close ? "" : "  WRONG");
  }
  template <typename Tile> static std::string nameOf(const char *kernel, int sharedBytes,
                                                     const void *function) {
    cudaFuncAttributes attributes;
    CHECK(cudaFuncGetAttributes(&attributes, function));
    int blocks = 0;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, 32 * Tile::warps,
                                                        sharedBytes));
    char text[128];
    std::snprintf(text, sizeof text, "%s %dx%d%s, %d regs, %d per SM", kernel, Tile::queries,
                  Tile::keys, Tile::queryRegisters ? "r" : "", attributes.numRegs, blocks);
    return text;
  }
  template <typename Tile> void timeForward() {
    using Plan = lmc::AttentionForward<Shape, Tile, Tile::headDim>;
    auto *kernel = forward<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    measure(nameOf<Tile>("forward", Plan::sharedBytes, (const void *)kernel).c_str(), 4, 1,
            [&] {
              kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(q(), k(), v(), out,
                                                                            lse);
            },
            out, expectedOut, width, 0, width);
  }
  // Of the 10 FLOPs of both kernels the usual count has, 3 products of 7 are computed here.
  template <typename Tile> void timeGradQueries() {
    using Plan = lmc::AttentionGradQueries<Shape, Tile, Tile::headDim>;
    auto *kernel = gradQueries<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    measure(nameOf<Tile>("dq", Plan::sharedBytes, (const void *)kernel).c_str(), 10, 3.0 / 7,
            [&] {
              kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(
                  q(), k(), v(), out, lse, dout, dqkv, delta);
            },
            dqkv, expectedGrad, Shape::dqPitch, 0, width);
  }
  template <typename Tile> void timeGradKeys() {
    using Plan = lmc::AttentionGradKeys<Shape, Tile, Tile::headDim>;
    auto *kernel = gradKeys<Shape, Tile>;
    CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               Plan::sharedBytes));
    measure(nameOf<Tile>("dk, dv", Plan::sharedBytes, (const void *)kernel).c_str(), 10, 4.0 / 7,
            [&] {
              kernel<<<Plan::blocks, 32 * Tile::warps, Plan::sharedBytes>>>(
                  q(), k(), v(), lse, dout, delta, dqkv + width, dqkv + width + kvWidth);
            },
            dqkv, expectedGrad, Shape::dqPitch, width, 2 * kvWidth);
  }
};

// Each variant of the table that is for the shape's head size.
template <typename Shape> bool everyTile(const char *title) {
  std::printf("%s\n", title);
  Bench<Shape> bench;
#define LMC_ATTENTION_TILE(Part, HeadDim, Queries, Keys, Warps, Stages, Registers, Blocks, ...)    \
  if constexpr (tileHeadDim(Shape::headDim) == HeadDim)                                            \
    bench.template time##Part<TileOf<HeadDim, Queries, Keys, Warps, Stages, Registers, Blocks>>();
#include "compiler/targets/cuda/AttentionTiles.def"
#undef LMC_ATTENTION_TILE
  return bench.good;
}

int main() {
  cudaDeviceProp device;
  CHECK(cudaGetDeviceProperties(&device, 0));
  std::printf("%s, %d SMs\n", device.name, device.multiProcessorCount);
  bool good =
      everyTile<ShapeOf<8, 2048, 64, 0>>("llama1b: 8 x 2048 tokens, 32 and 8 heads of 64, causal");
  good &= everyTile<ShapeOf<4, 4096, 96, 0>>("4 x 4096 tokens, 32 and 8 heads of 96, causal");
  good &= everyTile<ShapeOf<8, 2048, 80, 0>>("8 x 2048 tokens, 32 and 8 heads of 80, causal");
  good &= everyTile<ShapeOf<8, 2048, 112, 0>>("8 x 2048 tokens, 32 and 8 heads of 112, causal");
  good &= everyTile<ShapeOf<1, 8192, 128, 4096>>(
      "Mistral-7B: 1 x 8192 tokens, 32 and 8 heads of 128, window 4096");
  good &= everyTile<ShapeOf<2, 8192, 128, 0>>(
      "Llama 3 8B: 2 x 8192 tokens, 32 and 8 heads of 128, causal");
  return good ? 0 : 1;
}
