// Generated kernels against plain loops in double precision, for odd shapes, every
// vector width, and any division of the work.
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace lmc::codegen;
using namespace lmc::codegen::test;

namespace {

// LLVM splits vectors that are too wide for the CPU, so that every width runs here.
std::vector<CpuTarget> targets() {
  return {{"x86-64", 128}, {"native", 128}, {"native", 256}, {"native", 512}};
}

const int64_t kInner[] = {1, 7, 17, 33, 64, 131};

template <typename T> std::vector<T> randoms(size_t count, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, scale);
  std::vector<T> values(count);
  for (T &value : values)
    value = T(normal(generator));
  return values;
}

template <typename T>
void expectNear(const std::vector<T> &got, const std::vector<double> &want, double relative,
                const char *what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(double(got[i]), want[i], relative * (std::abs(want[i]) + 1e-3))
        << what << " at " << i;
}

// One result of a kernel: its storage.
struct Bytes {
  void *data;
  size_t size;
};

// Runs the kernel again in random pieces, in random order, and expects the same bits.
void expectSameInPieces(const Kernel &kernel, const std::vector<void *> &args,
                        const std::vector<Bytes> &results) {
  std::vector<std::vector<char>> whole;
  for (const Bytes &r : results) {
    auto *bytes = static_cast<char *>(r.data);
    whole.emplace_back(bytes, bytes + r.size);
  }
  std::mt19937 generator(7);
  for (int round = 0; round < 4; ++round) {
    for (const Bytes &r : results)
      std::memset(r.data, 0xff, r.size);
    int64_t items = kernel.shape().items;
    std::vector<int64_t> cuts{0, items};
    for (int i = 0; i < 6; ++i)
      cuts.push_back(generator() % (items + 1));
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i)
      order[i] = i;
    std::shuffle(order.begin(), order.end(), generator);
    for (size_t i : order)
      kernel.run(args, cuts[i], cuts[i + 1]);
    for (size_t i = 0; i < results.size(); ++i)
      ASSERT_EQ(std::memcmp(results[i].data, whole[i].data(), results[i].size), 0)
          << "result " << i << " depends on how the work is divided";
  }
}

template <typename T> Bytes bytes(std::vector<T> &v) { return {v.data(), v.size() * sizeof(T)}; }

std::string sized(const char *text, int64_t rows, int64_t columns, const char *type = "f32") {
  return substitute(text, {{"R", std::to_string(rows)},
                           {"C", std::to_string(columns)},
                           {"S", std::to_string(rows)},
                           {"T", type}});
}

// Calls body(target, inner extent) for all of them.
template <typename Body> void everywhere(Body body) {
  for (const CpuTarget &target : targets())
    for (int64_t inner : kInner) {
      SCOPED_TRACE(target.cpu + ", " + std::to_string(target.vectorWidth) + " bits, inner extent " +
                   std::to_string(inner));
      body(target, inner);
      if (testing::Test::HasFatalFailure())
        return;
    }
}

#define ASSERT_COMPILED(kernel) ASSERT_EQ((kernel).error(), "")

TEST(Codegen, residualRmsNorm) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kResidualRmsNorm, r, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_EQ(kernel.shape().items, r);
    EXPECT_EQ(kernel.shape().passes, 2u);
    auto x = randoms<float>(r * c, 1), res = randoms<float>(r * c, 2), w = randoms<float>(c, 3);
    std::vector<float> h(r * c), y(r * c), rstd(r);
    std::vector<void *> args{x.data(), res.data(), w.data(), h.data(), y.data(), rstd.data()};
    kernel.run(args);
    std::vector<double> wantH(r * c), wantY(r * c), wantRstd(r);
    for (int64_t i = 0; i < r; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < c; ++j) {
        wantH[i * c + j] = double(x[i * c + j]) + res[i * c + j];
        sum += wantH[i * c + j] * wantH[i * c + j];
      }
      wantRstd[i] = 1 / std::sqrt(sum / c + 1e-5);
      for (int64_t j = 0; j < c; ++j)
        wantY[i * c + j] = wantH[i * c + j] * wantRstd[i] * w[j];
    }
    expectNear(h, wantH, 1e-6, "h");
    expectNear(y, wantY, 3e-6, "y");
    expectNear(rstd, wantRstd, 2e-6, "rstd");
    expectSameInPieces(kernel, args, {bytes(h), bytes(y), bytes(rstd)});
    // h is written in the first pass and x read again in the second; y is not.
    EXPECT_FALSE(kernel.mayShare(0, 0));
    EXPECT_TRUE(kernel.mayShare(1, 0));
    EXPECT_TRUE(kernel.mayShare(1, 1));
    EXPECT_FALSE(kernel.mayShare(1, 2));
    EXPECT_FALSE(kernel.mayShare(2, 2));
    std::vector<float> inPlace = x, expected = y;
    kernel.run({inPlace.data(), res.data(), w.data(), h.data(), inPlace.data(), rstd.data()});
    EXPECT_EQ(inPlace, expected);
  });
}

TEST(Codegen, rmsNormInBf16) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kRmsNormBf16, r, c), target);
    ASSERT_COMPILED(kernel);
    auto x = randoms<bf16>(r * c, 1), w = randoms<bf16>(c, 3);
    std::vector<bf16> y(r * c);
    std::vector<float> rstd(r);
    std::vector<void *> args{x.data(), w.data(), y.data(), rstd.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < c; ++j)
        sum += double(x[i * c + j]) * x[i * c + j];
      double want = 1 / std::sqrt(sum / c + 1e-5);
      ASSERT_NEAR(rstd[i], want, 2e-6 * want);
      for (int64_t j = 0; j < c; ++j) {
        double value = double(x[i * c + j]) * want * w[j];
        // Half a unit of bf16's 8 bits of mantissa, and the f32 rounding before.
        ASSERT_NEAR(float(y[i * c + j]), value, std::abs(value) * (1.0 / 256 + 1e-5));
      }
    }
    expectSameInPieces(kernel, args, {bytes(y), bytes(rstd)});
  });
}

template <typename T> void rmsNormGrad(const char *type, double tolerance) {
  everywhere([&](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kRmsNormGrad, r, c, type), target);
    ASSERT_COMPILED(kernel);
    auto dy = randoms<T>(r * c, 1), x = randoms<T>(r * c, 2), w = randoms<T>(c, 3);
    std::vector<T> dx(r * c);
    std::vector<void *> args{dy.data(), x.data(), w.data(), dx.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r; ++i) {
      double squares = 0, products = 0;
      for (int64_t j = 0; j < c; ++j) {
        squares += double(x[i * c + j]) * x[i * c + j];
        products += double(dy[i * c + j]) * w[j] * x[i * c + j];
      }
      double rstd = 1 / std::sqrt(squares / c + 1e-5);
      for (int64_t j = 0; j < c; ++j) {
        double g = double(dy[i * c + j]) * w[j];
        double t = x[i * c + j] * rstd * rstd * products / c;
        ASSERT_NEAR(dx[i * c + j], rstd * (g - t),
                    tolerance * rstd * (std::abs(g) + std::abs(t) + std::abs(products) / c));
      }
    }
    expectSameInPieces(kernel, args, {bytes(dx)});
    EXPECT_TRUE(kernel.mayShare(0, 0));
    EXPECT_TRUE(kernel.mayShare(0, 1));
    std::vector<T> inPlace = dy;
    kernel.run({inPlace.data(), x.data(), w.data(), inPlace.data()});
    EXPECT_EQ(inPlace, dx);
  });
}

TEST(Codegen, rmsNormGradient) { rmsNormGrad<float>("f32", 3e-6); }
TEST(Codegen, rmsNormGradientInF64) { rmsNormGrad<double>("f64", 1e-13); }

TEST(Codegen, sumsOfBlocksOfRows) {
  for (int64_t rows : {1, 16}) {
    everywhere([&](const CpuTarget &target, int64_t c) {
      const int64_t blocks = 3, r = blocks * rows;
      std::string text = substitute(
          kBlockSums, {{"after", ""}, {"yield", "%sums : tensor<$Rx$Cxf32>, tensor<$Bx$Cxf32>"}});
      Kernel kernel(substitute(text, {{"R", std::to_string(r)},
                                      {"C", std::to_string(c)},
                                      {"P", std::to_string(rows)},
                                      {"B", std::to_string(blocks)}}),
                    target);
      ASSERT_COMPILED(kernel);
      EXPECT_EQ(kernel.shape().items, blocks);
      EXPECT_EQ(kernel.shape().rowsPerItem, rows);
      EXPECT_EQ(kernel.shape().passes, 2u);
      EXPECT_EQ(kernel.shape().readBytes, uint64_t(4 * r * c));
      EXPECT_EQ(kernel.shape().writtenBytes, uint64_t(4 * (r + blocks) * c));
      auto x = randoms<float>(r * c, 1);
      std::vector<float> y(r * c), sums(blocks * c);
      std::vector<void *> args{x.data(), y.data(), sums.data()};
      kernel.run(args);
      std::vector<double> wantY(r * c), wantSums(blocks * c);
      for (int64_t i = 0; i < r; ++i) {
        double squares = 0;
        for (int64_t j = 0; j < c; ++j)
          squares += double(x[i * c + j]) * x[i * c + j];
        for (int64_t j = 0; j < c; ++j) {
          wantY[i * c + j] = x[i * c + j] / std::sqrt(squares / c);
          wantSums[i / rows * c + j] += x[i * c + j] * wantY[i * c + j];
        }
      }
      expectNear(y, wantY, 1e-5, "y");
      expectNear(sums, wantSums, 1e-5, "sums");
      expectSameInPieces(kernel, args, {bytes(y), bytes(sums)});
      EXPECT_TRUE(kernel.mayShare(0, 0));
      EXPECT_FALSE(kernel.mayShare(1, 0)) << "rows are added to what is there";
      kernel.run({x.data(), x.data(), sums.data()});
      EXPECT_EQ(x, y);
      expectNear(sums, wantSums, 1e-5, "sums, with y over x");
    });
  }
}

TEST(Codegen, crossEntropyInPlace) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kCrossEntropy, r, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_EQ(kernel.shape().passes, 3u);
    auto x = randoms<float>(r * c, 1, 4);
    std::vector<int32_t> target1(r);
    for (int64_t i = 0; i < r; ++i)
      target1[i] = (i * 5 + 2) % c;
    float scale = 0.25f;
    std::vector<float> dx(r * c), loss(r);
    std::vector<void *> args{x.data(), target1.data(), &scale, dx.data(), loss.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r; ++i) {
      double max = -INFINITY, sum = 0;
      for (int64_t j = 0; j < c; ++j)
        max = std::max(max, double(x[i * c + j]));
      for (int64_t j = 0; j < c; ++j)
        sum += std::exp(x[i * c + j] - max);
      ASSERT_NEAR(loss[i], max + std::log(sum) - x[i * c + target1[i]], 5e-6);
      for (int64_t j = 0; j < c; ++j)
        ASSERT_NEAR(dx[i * c + j], scale * (std::exp(x[i * c + j] - max) / sum - (j == target1[i])),
                    1e-6);
    }
    expectSameInPieces(kernel, args, {bytes(dx), bytes(loss)});
    // The target's logit is read before the pass that writes the row.
    EXPECT_TRUE(kernel.mayShare(0, 0));
    std::vector<float> inPlace = x, loss2(r);
    kernel.run({inPlace.data(), target1.data(), &scale, inPlace.data(), loss2.data()});
    EXPECT_EQ(inPlace, dx);
    EXPECT_EQ(loss2, loss);
  });
}

TEST(Codegen, swiglu) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kSwiglu, r, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_TRUE(kernel.shape().flat);
    EXPECT_EQ(kernel.shape().items, r * c);
    auto gate = randoms<float>(r * c, 1, 3), up = randoms<float>(r * c, 2);
    std::vector<float> y(r * c);
    std::vector<double> want(r * c);
    std::vector<void *> args{gate.data(), up.data(), y.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r * c; ++i)
      want[i] = gate[i] / (1 + std::exp(-double(gate[i]))) * up[i];
    expectNear(y, want, 1e-6, "y");
    expectSameInPieces(kernel, args, {bytes(y)});
    EXPECT_TRUE(kernel.mayShare(0, 0));
    std::vector<float> inPlace = gate;
    kernel.run({inPlace.data(), up.data(), inPlace.data()});
    EXPECT_EQ(inPlace, y);
  });
}

TEST(Codegen, swigluGradientInPlace) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 5;
    Kernel kernel(sized(kSwigluGrad, r, c), target);
    ASSERT_COMPILED(kernel);
    auto dy = randoms<float>(r * c, 1), gate = randoms<float>(r * c, 2),
         up = randoms<float>(r * c, 3);
    std::vector<float> dg(r * c), du(r * c);
    std::vector<double> wantG(r * c), wantU(r * c);
    std::vector<void *> args{dy.data(), gate.data(), up.data(), dg.data(), du.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r * c; ++i) {
      double s = 1 / (1 + std::exp(-double(gate[i])));
      wantU[i] = dy[i] * gate[i] * s;
      wantG[i] = double(dy[i]) * up[i] * s * (1 + gate[i] * (1 - s));
    }
    expectNear(dg, wantG, 1e-5, "dgate");
    expectNear(du, wantU, 2e-6, "dup");
    expectSameInPieces(kernel, args, {bytes(dg), bytes(du)});
    EXPECT_TRUE(kernel.mayShare(0, 1));
    EXPECT_TRUE(kernel.mayShare(1, 2));
    std::vector<float> inGate = gate, inUp = up;
    kernel.run({dy.data(), inGate.data(), inUp.data(), inGate.data(), inUp.data()});
    EXPECT_EQ(inGate, dg);
    EXPECT_EQ(inUp, du);
  });
}

TEST(Codegen, rope) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t b = 2, s = 3, h = 3, n = b * s * h * 2 * c;
    Kernel kernel(sized(kRope, s, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_EQ(kernel.shape().items, b * s * h * 2);
    auto x = randoms<float>(n, 1), cos = randoms<float>(s * c, 2), sin = randoms<float>(s * c, 3);
    std::vector<float> y(n);
    std::vector<double> want(n);
    std::vector<void *> args{x.data(), cos.data(), sin.data(), y.data()};
    kernel.run(args);
    for (int64_t i = 0; i < n; ++i) {
      int64_t d = i % c, j = i / c % 2, token = i / (c * 2 * h) % s;
      double other = x[j ? i - c : i + c];
      want[i] = x[i] * double(cos[token * c + d]) + (j ? 1 : -1) * other * sin[token * c + d];
    }
    for (int64_t i = 0; i < n; ++i)
      ASSERT_NEAR(y[i], want[i], 2e-6);
    expectSameInPieces(kernel, args, {bytes(y)});
    EXPECT_FALSE(kernel.mayShare(0, 0)) << "each half is read for the other one too";
  });
}

TEST(Codegen, gather) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 6;
    Kernel kernel(sized(kGather, r, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_EQ(kernel.shape().items, r);
    auto table = randoms<float>(11 * c, 1);
    // The last two lie outside and must not be followed.
    std::vector<int32_t> ids{3, 0, 10, 3, -5, 2000000000};
    std::vector<float> y(r * c);
    std::vector<void *> args{table.data(), ids.data(), y.data()};
    kernel.run(args);
    for (int64_t i = 0; i < r; ++i)
      for (int64_t j = 0; j < c; ++j)
        ASSERT_EQ(y[i * c + j], table[std::clamp(ids[i], 0, 10) * c + j]);
    expectSameInPieces(kernel, args, {bytes(y)});
  });
}

TEST(Codegen, columnSumOntoAccumulator) {
  for (int64_t r : {1, 64, 150})
    everywhere([&](const CpuTarget &target, int64_t c) {
      Kernel kernel(sized(kColumnSum, r, c), target);
      ASSERT_COMPILED(kernel);
      EXPECT_EQ(kernel.shape().items, c);
      auto dy = randoms<float>(r * c, 1), x = randoms<float>(r * c, 2), rstd = randoms<float>(r, 3),
           acc = randoms<float>(c, 4);
      std::vector<float> dw(c);
      std::vector<void *> args{dy.data(), x.data(), rstd.data(), acc.data(), dw.data()};
      kernel.run(args);
      for (int64_t j = 0; j < c; ++j) {
        double sum = acc[j], magnitude = std::abs(acc[j]);
        for (int64_t i = 0; i < r; ++i) {
          sum += double(dy[i * c + j]) * x[i * c + j] * rstd[i];
          magnitude += std::abs(double(dy[i * c + j]) * x[i * c + j] * rstd[i]);
        }
        ASSERT_NEAR(dw[j], sum, 1e-6 * magnitude);
      }
      expectSameInPieces(kernel, args, {bytes(dw)});
      EXPECT_TRUE(kernel.mayShare(0, 3));
      kernel.run({dy.data(), x.data(), rstd.data(), acc.data(), acc.data()});
      EXPECT_EQ(acc, dw);
    });
}

TEST(Codegen, adamWithSumsOfSquares) {
  everywhere([](const CpuTarget &target, int64_t c) {
    const int64_t r = 4;
    Kernel kernel(sized(kAdamW, r, c), target);
    ASSERT_COMPILED(kernel);
    EXPECT_EQ(kernel.shape().passes, 1u);
    auto p = randoms<float>(r * c, 1), g = randoms<float>(r * c, 2), m = randoms<float>(r * c, 3),
         v = randoms<float>(r * c, 4);
    for (float &value : v)
      value = std::abs(value);
    float clip = 0.5f, lr = 0.01f;
    std::vector<float> p1(r * c), m1(r * c), v1(r * c), ss(r);
    std::vector<void *> args{p.data(), g.data(),  m.data(),  v.data(),  &clip,
                             &lr,      p1.data(), m1.data(), v1.data(), ss.data()};
    kernel.run(args);
    std::vector<double> wantP(r * c), wantM(r * c), wantV(r * c), wantS(r);
    for (int64_t i = 0; i < r * c; ++i) {
      double h = double(g[i]) * clip;
      wantM[i] = 0.9 * m[i] + 0.1 * h;
      wantV[i] = 0.95 * v[i] + 0.05 * h * h;
      double u = lr * (wantM[i] / (std::sqrt(wantV[i]) + 1e-8) + 0.1 * p[i]);
      wantP[i] = p[i] - u;
      wantS[i / c] += u * u;
    }
    expectNear(p1, wantP, 2e-6, "p");
    expectNear(m1, wantM, 1e-5, "m");
    expectNear(v1, wantV, 2e-6, "v");
    expectNear(ss, wantS, 1e-5, "sum of squares");
    expectSameInPieces(kernel, args, {bytes(p1), bytes(m1), bytes(v1), bytes(ss)});
    for (unsigned result : {0u, 1u, 2u})
      EXPECT_TRUE(kernel.mayShare(result, result == 0 ? 0 : result + 1));
    kernel.run({p.data(), g.data(), m.data(), v.data(), &clip, &lr, p.data(), m.data(), v.data(),
                ss.data()});
    EXPECT_EQ(p, p1);
    EXPECT_EQ(m, m1);
    EXPECT_EQ(v, v1);
  });
}

} // namespace
