// Products of a gated MLP with SwiGLU in their epilogues (swiglu_gemm.cuh) against f64.
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cmath>
#include <cstring>

using namespace lmc;
using namespace lmc::simt;
using cpu::Storage;
using cpu::test::Values;

namespace {

struct SwigluShape {
  int64_t rows, inner, columns, blocks, n = 256, stages = 4, band = 8;
  bool both = true;
};

struct alignas(64) SwigluLine {
  char bytes[64] = {};
};
std::vector<SwigluLine> linesOf(const Values &values) {
  std::vector<SwigluLine> lines((values.bytes.size() + 63) / 64);
  std::memcpy(lines.data(), values.bytes.data(), values.bytes.size());
  return lines;
}

Source sourceOf(const char *header, const SwigluShape &shape, const char *parameters,
                const std::string &call) {
  Source source;
  source.name = "product";
  source.text = fmt::format(
      "#include \"lmc/{}\"\nusing namespace lmc;\nstruct Shape {{\n"
      "  static constexpr int rows = {}, inner = {}, columns = {}, blocks = {}, band = {};\n"
      "  static constexpr bool both = {};\n}};\n"
      "extern \"C\" __global__ void __launch_bounds__(256, 1) product({}) {{\n  {};\n}}\n",
      header, shape.rows, shape.inner, shape.columns, shape.blocks, shape.band, shape.both,
      parameters, call);
  source.threads = 256;
  return source;
}

Result<simt::Kernel> compiled(const char *function, const SwigluShape &shape,
                              const char *parameters, const char *arguments) {
  Source source =
      sourceOf("swiglu_gemm.cuh", shape, parameters,
               fmt::format("{}<Shape, {}, {}>({})", function, shape.n, shape.stages, arguments));
  source.grid = {uint32_t(shape.blocks), 1, 1};
  source.sharedBytes = uint32_t(shape.stages * (128 + shape.n) * 64 * 2 + 1024);
  return compile(source);
}

Result<simt::Kernel> compiledRows(const SwigluShape &shape, const char *parameters,
                                  const char *call) {
  Source source = sourceOf("swiglu.cuh", shape, parameters, call);
  source.grid = {uint32_t((shape.rows * shape.columns / 8 + 255) / 256), 1, 1};
  return compile(source);
}

double silu(double g) { return g / (1 + std::exp(-g)); }

// Returns the value that a bf16 has after rounding.
double rounded(double x) {
  Values one(Storage::BF16, 1);
  one.set(0, x);
  return one[0];
}

class SwigluGemm {
public:
  SwigluGemm(const SwigluShape &shape, uint64_t seed) : shape(shape), random(seed), seed(seed) {}

  void plain() {
    const Values x = drawn(shape.rows * shape.inner), w = drawn(shape.columns * shape.inner);
    Values y(Storage::BF16, shape.rows * shape.columns);
    auto kernel = compiled("plainGemm", shape, "const bf16 *x, const bf16 *w, bf16 *y", "x, w, y");
    run(kernel, {&x, &w}, {&y});
    std::vector<double> expected;
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < shape.columns; ++c)
        expected.push_back(dot(x, r * shape.inner, 1, w, c * shape.inner, 1));
    EXPECT_LE(cpu::test::error(y, expected), 4e-3);
  }

  void forward() {
    const Values x = drawn(shape.rows * shape.inner), w = drawn(2 * shape.columns * shape.inner);
    Values gu(Storage::BF16, 2 * shape.rows * shape.columns);
    Values a(Storage::BF16, shape.rows * shape.columns);
    auto kernel = compiled("swigluGemm", shape, "const bf16 *x, const bf16 *w, bf16 *gu, bf16 *a",
                           "x, w, gu, a");
    run(kernel, {&x, &w}, {&gu, &a}, shape.both ? Access::Write : Access::ReadWrite);
    std::vector<double> both;
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < 2 * shape.columns; ++c)
        both.push_back(dot(x, r * shape.inner, 1, w, c * shape.inner, 1));
    if (shape.both) {
      EXPECT_LE(cpu::test::error(gu, both), 4e-3);
      // Of the rounded factors, as an elementwise kernel would read them.
      expectRounded(a, activationOf(gu));
      return;
    }
    for (int64_t i = 0; i < gu.size(); ++i) {
      ASSERT_TRUE(std::isnan(gu[i])) << i; // it was not written
      gu.set(i, both[size_t(i)]);
    }
    EXPECT_LE(cpu::test::error(a, activationOf(gu)), 1e-2);
  }

  void rows() {
    const Values gu = drawn(2 * shape.rows * shape.columns, 4);
    Values a(Storage::BF16, shape.rows * shape.columns);
    auto forward = compiledRows(shape, "const bf16 *gu, bf16 *a", "swigluRows<Shape>(gu, a)");
    run(forward, {&gu}, {&a});
    expectRounded(a, activationOf(gu));
    // Results take the places of what they are computed from.
    Values halves = gu, d = drawn(shape.rows * shape.columns);
    const std::vector<double> expected =
        gradientOf(gu, [&](int64_t r, int64_t c) { return d[r * shape.columns + c]; });
    const Values before = d;
    auto grad = compiledRows(shape, "bf16 *gu, bf16 *d", "swigluRowsGrad<Shape>(d, gu, gu, d)");
    run(grad, {}, {&halves, &d}, Access::ReadWrite);
    EXPECT_LE(cpu::test::error(halves, expected), 4e-3);
    if (shape.both)
      expectRounded(d, activationOf(gu));
    else
      EXPECT_EQ(d.bytes, before.bytes);
  }

  void gradient() {
    const Values dy = drawn(shape.rows * shape.inner), w = drawn(shape.inner * shape.columns);
    const Values gu = drawn(2 * shape.rows * shape.columns, 4);
    Values a(Storage::BF16, shape.rows * shape.columns);
    // Gradients take the places of g and u.
    Values halves = gu;
    auto kernel = compiled("swigluGemmGrad", shape,
                           "const bf16 *dy, const bf16 *w, bf16 *gu, bf16 *a", "dy, w, gu, gu, a");
    run(kernel, {&dy, &w}, {&halves, &a}, Access::ReadWrite);
    const std::vector<double> expected = gradientOf(gu, [&](int64_t r, int64_t c) {
      return rounded(dot(dy, r * shape.inner, 1, w, c, shape.columns));
    });
    EXPECT_LE(cpu::test::error(halves, expected), 4e-3);
    if (shape.both)
      expectRounded(a, activationOf(gu));
    for (int64_t i = 0; !shape.both && i < a.size(); ++i)
      ASSERT_TRUE(std::isnan(a[i])) << i; // it was not written
  }

  std::vector<Traffic> traffic;
  uint64_t order = 1;
  bool counts = false;

private:
  Values drawn(int64_t count, double scale = 1) {
    Values values = Values::random(Storage::BF16, count, random);
    for (int64_t i = 0; scale != 1 && i < count; ++i)
      values.set(i, scale * values[i]);
    return values;
  }

  std::vector<double> activationOf(const Values &gu) const {
    std::vector<double> activation;
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < shape.columns; ++c) {
        const int64_t at = 2 * r * shape.columns + c;
        activation.push_back(silu(gu[at]) * gu[at + shape.columns]);
      }
    return activation;
  }

  // Returns the gradients of g and u, from d(r, c), that of silu(g) u.
  template <typename Gradient>
  std::vector<double> gradientOf(const Values &gu, Gradient gradient) const {
    std::vector<double> expected(size_t(gu.size()));
    for (int64_t r = 0; r < shape.rows; ++r)
      for (int64_t c = 0; c < shape.columns; ++c) {
        const int64_t at = 2 * r * shape.columns + c;
        const double g = gu[at], u = gu[at + shape.columns], s = 1 / (1 + std::exp(-g));
        const double d = gradient(r, c);
        expected[size_t(at)] = d * u * s * (1 + g * (1 - s));
        expected[size_t(at + shape.columns)] = d * silu(g);
      }
    return expected;
  }

  double dot(const Values &x, int64_t first, int64_t step, const Values &w, int64_t from,
             int64_t stride) const {
    double sum = 0;
    for (int64_t k = 0; k < shape.inner; ++k)
      sum += x[first + k * step] * w[from + k * stride];
    return sum;
  }

  // Each element is the exact value within one rounding to bf16 and the errors of f32.
  static void expectRounded(const Values &got, const std::vector<double> &exact) {
    for (size_t i = 0; i < exact.size(); ++i)
      ASSERT_NEAR(got[int64_t(i)], exact[i], std::abs(exact[i]) * 0x1.02p-8 + 1e-30) << i;
  }

  void run(Result<simt::Kernel> &kernel, std::vector<const Values *> inputs,
           std::vector<Values *> results, Access access = Access::Write) {
    ASSERT_TRUE(kernel) << kernel.error().message;
    std::vector<std::vector<SwigluLine>> memory;
    std::vector<Argument> arguments;
    for (const Values *input : inputs)
      memory.push_back(linesOf(*input));
    for (Values *result : results)
      memory.push_back(linesOf(*result));
    for (size_t i = 0; i < memory.size(); ++i) {
      const bool isInput = i < inputs.size();
      const size_t bytes = isInput ? inputs[i]->bytes.size() : results[i - inputs.size()]->bytes.size();
      arguments.push_back({memory[i].data(), bytes, isInput ? Access::Read : access});
    }
    RunResult done = runTwice(*kernel, arguments, order, counts);
    ASSERT_EQ(done.failure, "");
    EXPECT_FALSE(done.atomics);
    for (size_t i = 0; i < results.size(); ++i)
      std::memcpy(results[i]->data(), memory[inputs.size() + i].data(), results[i]->bytes.size());
    traffic = done.traffic;
  }

  const SwigluShape shape;
  std::mt19937_64 random;
  const uint64_t seed;
};

void checkSwiglu(const SwigluShape &shape, uint64_t seed = 1) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, {} blocks", shape.rows, shape.inner, shape.columns, shape.blocks));
  SwigluGemm gemm(shape, seed);
  gemm.order = seed;
  gemm.plain();
  gemm.forward();
  gemm.gradient();
  gemm.rows();
}

} // namespace

// Sizes below a tile and a slice, of several, and between; more blocks than tiles, and fewer.
TEST(SwigluGemmKernels, AgreeWithF64) {
  checkSwiglu({8, 8, 8, 2});
  checkSwiglu({300, 72, 136, 2});
  checkSwiglu({128, 456, 264, 1});
  checkSwiglu({260, 64, 520, 5});
}

// Tiles of more than a band of rows, each once.
TEST(SwigluGemmKernels, BandsHaveEachTileOnce) {
  checkSwiglu({1160, 16, 520, 3});
  checkSwiglu({1024, 16, 256, 7, 128, 6, 3});
}

TEST(SwigluGemmKernels, DrawnShapes) {
  for (int64_t seed = 1, last = drawCount(16); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    SwigluShape shape{draw.extent(400), 8 * draw.extent(40), 8 * draw.extent(60),
                      int64_t(draw.extent(6))};
    if (draw.oneIn(3))
      shape.n = 128, shape.stages = 6;
    shape.both = !draw.oneIn(3);
    checkSwiglu(shape, uint64_t(seed));
    if (testing::Test::HasFatalFailure())
      return;
  }
}

// The ring of slices goes round within tiles and from one tile to the next: orders of threads, copies
// and products.
TEST(SwigluGemmKernels, InDrawnOrders) {
  const int64_t orders = lmc::test::drawCount(20);
  for (int64_t order = 1; order <= orders; ++order) {
    SwigluGemm gemm({200, 200, 264, 1}, 7);
    gemm.order = uint64_t(order);
    order % 2 ? gemm.forward() : gemm.gradient();
    if (HasFatalFailure() || HasNonfatalFailure())
      FAIL() << "order " << order;
  }
}

// Whole tiles: every result is stored once, in whole sectors of 32 bytes.
TEST(SwigluGemmKernels, StoreWholeSectors) {
  SwigluGemm gemm({256, 64, 256, 2}, 1);
  gemm.counts = true;
  for (bool isGrad : {false, true}) {
    isGrad ? gemm.gradient() : gemm.forward();
    uint64_t stored = 0, sectors = 0;
    for (const Traffic &each : gemm.traffic) {
      stored += each.stored;
      sectors += each.storeSectors;
    }
    EXPECT_EQ(stored, 3u * 256 * 256 * 2) << isGrad;
    EXPECT_EQ(sectors * 32, stored) << isGrad;
  }
}
