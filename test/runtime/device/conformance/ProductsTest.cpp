// Matrix products, alone and with SwiGLU.
#include "test/runtime/device/conformance/Conformance.h"

#include <cmath>

using namespace lmc;
using namespace lmc::test;

TEST_P(Conformance, MultipliesAndCopies) {
  uint32_t a = b.slice(DType::F32, {2, 3}), w = b.slice(DType::F32, {4, 3});
  uint32_t d = b.slice(DType::F32, {2, 4}), e = b.slice(DType::F32, {2, 4});
  plan::GemmT gemm;
  gemm.a = a;
  gemm.b = w;
  gemm.d = d;
  gemm.c = int(d);
  gemm.m = 2;
  gemm.n = 4;
  gemm.k = 3;
  gemm.transpose_b = true;
  b.command(gemm);
  plan::CopyT copy;
  copy.x = d;
  copy.d = e;
  b.command(copy);
  ASSERT_NO_FATAL_FAILURE(record(2));
  write(a, std::vector<float>{1, 2, 3, 4, 5, 6});
  write(w, std::vector<float>{1, 0, 0, 0, 1, 0, 0, 0, 1, 0.5, 0.5, 0.5});
  write(d, std::vector<float>(8, 10.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(e), (std::vector<float>{11, 12, 13, 13, 14, 15, 16, 17.5}));
}

// d of each product lies behind that of the one before.
TEST_P(Conformance, MultipliesStacks) {
  plan::GemmT gemm;
  gemm.a = b.slice(DType::F32, {4, 2});
  gemm.b = b.slice(DType::F32, {6, 2});
  gemm.d = b.slice(DType::F32, {4, 3});
  gemm.c = int(gemm.d);
  gemm.m = 2;
  gemm.n = 3;
  gemm.k = 2;
  gemm.batch = 2;
  gemm.transpose_b = true;
  b.command(gemm);
  ASSERT_NO_FATAL_FAILURE(record());
  write(gemm.a, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  write(gemm.b, std::vector<float>{1, 0, 0, 1, 1, 1, 2, 0, 0, 2, 2, 2});
  write(gemm.d, std::vector<float>(12, 100.0f));
  ASSERT_NO_FATAL_FAILURE(run());
  EXPECT_EQ(read<float>(gemm.d),
            (std::vector<float>{101, 102, 103, 103, 104, 107, 110, 112, 122, 114, 116, 130}));
}

// The bias is added before the result is rounded: 257 is no bf16, and 257 + 1 is.
TEST_P(Conformance, AddsBiases) {
  for (DType dtype : {DType::BF16, DType::F32, DType::F64}) {
    executable = nullptr;
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    plan::GemmT gemm;
    gemm.a = b.slice(dtype, {2, 3});
    gemm.b = b.slice(dtype, {4, 3});
    gemm.d = b.slice(dtype, {2, 4});
    gemm.bias = int(b.slice(dtype, {4}));
    gemm.m = 2;
    gemm.n = 4;
    gemm.k = 3;
    gemm.transpose_b = true;
    b.command(gemm);
    ASSERT_NO_FATAL_FAILURE(record());
    writeFloats(dtype, gemm.a, {16, 1, 0, 1, 2, 3});
    writeFloats(dtype, gemm.b, {16, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0});
    writeFloats(dtype, uint32_t(gemm.bias), {1, 2, 3, 4});
    ASSERT_NO_FATAL_FAILURE(run());
    EXPECT_EQ(readFloats(dtype, gemm.d), (std::vector<double>{258, 2, 19, 5, 19, 5, 4, 6}))
        << plan::EnumNameDType(dtype);
  }
}

// The residual is added before the result is rounded, and keeps its values.
TEST_P(Conformance, AddsResiduals) {
  for (DType dtype : {DType::BF16, DType::F32, DType::F64})
    for (bool hasBias : {false, true}) {
      executable = nullptr;
      b = PlanBuilder();
      b.plan.target = GetParam().target;
      plan::GemmT gemm;
      gemm.a = b.slice(dtype, {2, 3});
      gemm.b = b.slice(dtype, {4, 3});
      gemm.d = b.slice(dtype, {2, 4});
      gemm.c = int(b.slice(dtype, {2, 4}));
      if (hasBias)
        gemm.bias = int(b.slice(dtype, {4}));
      gemm.m = 2;
      gemm.n = 4;
      gemm.k = 3;
      gemm.transpose_b = true;
      b.command(gemm);
      ASSERT_NO_FATAL_FAILURE(record());
      const std::vector<double> residual{1, 2, 3, 4, 5, 6, 7, 8};
      writeFloats(dtype, gemm.a, {16, 1, 0, 1, 2, 3});
      writeFloats(dtype, gemm.b, {16, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0});
      writeFloats(dtype, uint32_t(gemm.c), residual);
      writeFloats(dtype, gemm.d, std::vector<double>(8, 100));
      if (hasBias)
        writeFloats(dtype, uint32_t(gemm.bias), {2, 0, 0, -1});
      ASSERT_NO_FATAL_FAILURE(run());
      ASSERT_NO_FATAL_FAILURE(run()); // what d holds does not count
      EXPECT_EQ(readFloats(dtype, gemm.d), hasBias
                                               ? (std::vector<double>{260, 2, 19, 4, 25, 9, 8, 9})
                                               : (std::vector<double>{258, 2, 19, 5, 23, 9, 8, 10}))
          << plan::EnumNameDType(dtype);
      EXPECT_EQ(readFloats(dtype, uint32_t(gemm.c)), residual) << plan::EnumNameDType(dtype);
    }
}

// Each way to compute the commands: by a product and a kernel behind it, and by one kernel. Where
// `both` is not set, one of the results is scratch memory.
TEST_P(Conformance, ComputesProductsWithSwiglu) {
  constexpr size_t kRows = 3, kInner = 4, kColumns = 5;
  const char *const kForwardRows = R"((const float *gu, float *a) {
    for (int i = 0; i < 15; ++i) {
      const float g = loadOne(gu + i / 5 * 10 + i % 5);
      storeOne(a + i, g / (1 + expf(-g)) * loadOne(gu + i / 5 * 10 + 5 + i % 5));
    }
  })";
  const char *const kForwardWhole = R"((const float *x, const float *w, float *gu, float *a) {
    for (int i = 0; i < 15; ++i) {
      float both[2] = {0, 0};
      for (int half = 0; half < 2; ++half) {
        for (int k = 0; k < 4; ++k)
          both[half] += loadOne(x + i / 5 * 4 + k) * loadOne(w + (half * 5 + i % 5) * 4 + k);
        storeOne(gu + i / 5 * 10 + half * 5 + i % 5, both[half]);
      }
      storeOne(a + i, both[0] / (1 + expf(-both[0])) * both[1]);
    }
  })";
  const char *const kGradientRows = R"((const float *gu, float *dgu, float *d) {
    for (int i = 0; i < 15; ++i) {
      const int gate = i / 5 * 10 + i % 5;
      const float g = loadOne(gu + gate), u = loadOne(gu + gate + 5), s = 1 / (1 + expf(-g));
      const float gradient = loadOne(d + i);
      storeOne(dgu + gate, gradient * u * s * (1 + g * (1 - s)));
      storeOne(dgu + gate + 5, gradient * g * s);
      storeOne(d + i, g * s * u);
    }
  })";
  const char *const kGradientWhole =
      R"((const float *dy, const float *w, const float *gu, float *dgu, float *a) {
    for (int i = 0; i < 15; ++i) {
      const int gate = i / 5 * 10 + i % 5;
      const float g = loadOne(gu + gate), u = loadOne(gu + gate + 5), s = 1 / (1 + expf(-g));
      float gradient = 0;
      for (int k = 0; k < 4; ++k)
        gradient += loadOne(dy + i / 5 * 4 + k) * loadOne(w + k * 5 + i % 5);
      storeOne(dgu + gate, gradient * u * s * (1 + g * (1 - s)));
      storeOne(dgu + gate + 5, gradient * g * s);
      storeOne(a + i, g * s * u);
    }
  })";
  auto matrix = [&](size_t rows, size_t columns) {
    return b.slice(DType::F32, {uint64_t(rows), uint64_t(columns)});
  };
  auto productOf = [&](uint32_t left, uint32_t weight, uint32_t result, size_t columns) {
    auto product = std::make_unique<plan::GemmT>();
    product->a = left;
    product->b = weight;
    product->d = result;
    product->m = kRows;
    product->n = columns;
    product->k = kInner;
    return product;
  };
  const uint32_t x = matrix(kRows, kInner), w = matrix(2 * kColumns, kInner);
  const uint32_t dy = matrix(kRows, kInner), down = matrix(kInner, kColumns);
  // With `both` first, then without; each twice, as devices take turns.
  std::vector<uint32_t> gu, a, dgu, again;
  for (int i = 0; i < 4; ++i) {
    gu.push_back(matrix(kRows, 2 * kColumns));
    a.push_back(matrix(kRows, kColumns));
    plan::LinearSwigluT forward;
    forward.product = productOf(x, w, gu.back(), 2 * kColumns);
    forward.product->transpose_b = true;
    forward.a = a.back();
    forward.both = i < 2;
    b.command(forward);
    addLoops(fmt::format("forward_rows{}", i), kForwardRows, {gu.back(), a.back()}, 1);
    addLoops(fmt::format("forward_whole{}", i), kForwardWhole, {x, w, gu.back(), a.back()}, 2);
    dgu.push_back(matrix(kRows, 2 * kColumns));
    again.push_back(matrix(kRows, kColumns));
  }
  for (int i = 0; i < 4; ++i) {
    plan::SwigluLinearGradT grad;
    grad.product = productOf(dy, down, again[size_t(i)], kColumns);
    grad.dgu = dgu[size_t(i)];
    grad.both = i < 2;
    b.command(grad);
    addLoops(fmt::format("gradient_rows{}", i), kGradientRows,
             {grad.dgu, grad.dgu, again[size_t(i)]}, 1);
    addLoops(fmt::format("gradient_whole{}", i), kGradientWhole,
             {dy, down, grad.dgu, grad.dgu, again[size_t(i)]}, 3);
  }
  ASSERT_NO_FATAL_FAILURE(record(2));

  auto values = [](size_t count, int factor) {
    std::vector<float> numbers;
    for (size_t i = 0; i < count; ++i)
      numbers.push_back(float(int(i) * factor % 7 - 3) / 4);
    return numbers;
  };
  const std::vector<float> left = values(kRows * kInner, 2),
                           weight = values(2 * kColumns * kInner, 3),
                           dout = values(kRows * kInner, 4), second = values(kInner * kColumns, 5),
                           halves = values(kRows * 2 * kColumns, 6);
  write(x, left);
  write(w, weight);
  write(dy, dout);
  write(down, second);
  for (uint32_t each : dgu)
    write(each, halves);
  ASSERT_NO_FATAL_FAILURE(run());
  auto silu = [](double gate) { return gate / (1 + std::exp(-gate)); };
  for (size_t r = 0; r < kRows; ++r)
    for (size_t c = 0; c < kColumns; ++c) {
      double both[2] = {0, 0}, gradient = 0;
      for (size_t k = 0; k < kInner; ++k) {
        for (size_t half = 0; half < 2; ++half)
          both[half] += left[r * kInner + k] * weight[(half * kColumns + c) * kInner + k];
        gradient += dout[r * kInner + k] * second[k * kColumns + c];
      }
      const size_t at = r * kColumns + c, gateAt = r * 2 * kColumns + c, upAt = gateAt + kColumns;
      const double gate = halves[gateAt], up = halves[upAt], step = 1e-4;
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(read<float>(a[i])[at], silu(both[0]) * both[1], 1e-5);
        EXPECT_NEAR(read<float>(dgu[i])[gateAt],
                    gradient * up * (silu(gate + step) - silu(gate - step)) / (2 * step), 1e-5);
        EXPECT_NEAR(read<float>(dgu[i])[upAt], gradient * silu(gate), 1e-5);
        if (i >= 2)
          continue;
        EXPECT_NEAR(read<float>(gu[i])[gateAt], both[0], 1e-5);
        EXPECT_NEAR(read<float>(gu[i])[upAt], both[1], 1e-5);
        EXPECT_NEAR(read<float>(again[i])[at], silu(gate) * up, 1e-5);
      }
    }
}
