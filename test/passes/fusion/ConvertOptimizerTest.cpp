// lm.adamw8bit's kernel against its formulas in double precision.
#include "test/passes/fusion/AdamW8bitKernel.h"

#include "gtest/gtest.h"

#include <cmath>
#include <random>

using namespace lmc;
using namespace lmc::codegen::test;
using namespace mlir;

namespace {

constexpr int64_t kBlocks = 7, kElements = kBlocks * lm::AdamW8bitOp::kBlock;

struct Scalars {
  float norm = 4, lr = 0.01f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, correction1 = 0.3f,
        correction2 = 0.2f, clip = 1, decay = 0.1f;
};

struct State {
  std::vector<float> p, g;
  std::vector<int8_t> m, v;
  std::vector<float> mScale, vScale, updateSq, paramSq;
  std::vector<bf16> copy;

  explicit State(unsigned seed)
      : p(kElements), g(kElements), m(kElements), v(kElements), mScale(kBlocks), vScale(kBlocks),
        updateSq(kBlocks), paramSq(kBlocks), copy(kElements) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < kElements; ++i) {
      p[size_t(i)] = normal(random);
      g[size_t(i)] = normal(random) * std::exp(3 * normal(random));
      m[size_t(i)] = int8_t(int(random() % 255) - 127);
      v[size_t(i)] = int8_t(random() % 256);
    }
    for (int64_t block = 0; block < kBlocks; ++block) {
      mScale[size_t(block)] = std::exp(normal(random));
      vScale[size_t(block)] = std::exp(normal(random));
    }
  }

  double oldM(size_t i) const {
    double c = m[i] / 127.0;
    return mScale[i / 256] * (c < 0 ? -1 : 1) * std::pow(std::abs(c), 4);
  }
  double oldV(size_t i) const { return vScale[i / 256] * std::pow(uint8_t(v[i]) / 255.0, 8); }
};

// Runs the kernel from `from` into `to`, which may be the same.
void run(const Kernel &kernel, State &from, State &to, Scalars s, int64_t begin, int64_t end) {
  kernel.run({from.p.data(), from.g.data(), from.m.data(), from.mScale.data(), from.v.data(),
              from.vScale.data(), &s.norm, &s.lr, &s.beta1, &s.beta2, &s.eps, &s.correction1,
              &s.correction2, &s.clip, &s.decay, to.p.data(), to.m.data(), to.mScale.data(),
              to.v.data(), to.vScale.data(), to.updateSq.data(), to.paramSq.data(), to.copy.data()},
             begin, end);
}

void expectSameState(const State &a, const State &b) {
  EXPECT_EQ(a.p, b.p);
  EXPECT_EQ(a.m, b.m);
  EXPECT_EQ(a.v, b.v);
  EXPECT_EQ(a.mScale, b.mScale);
  EXPECT_EQ(a.vScale, b.vScale);
}

class ConvertAdamW8bit : public testing::Test {
protected:
  void SetUp() override { ASSERT_EQ(kernel.error(), ""); }
  Kernel kernel{adamW8bitKernel(kBlocks)};
};

TEST_F(ConvertAdamW8bit, StepIsThatOfItsFormulas) {
  EXPECT_EQ(kernel.shape().items, kBlocks);
  EXPECT_EQ(kernel.shape().passes, 2u);
  State from(1), to(2);
  Scalars s;
  run(kernel, from, to, s, 0, kBlocks);
  int farther = 0; // codes that are not the double's: it lies at the boundary between two
  for (size_t block = 0; block < size_t(kBlocks); ++block) {
    double topM = 0, topV = 0, updateSq = 0, paramSq = 0;
    std::vector<double> m(256), v(256);
    for (size_t j = 0; j < 256; ++j) {
      size_t i = block * 256 + j;
      double g = from.g[i] * std::min(1.0, s.clip / (double(s.norm) + 1e-6));
      m[j] = from.oldM(i) + (1 - double(s.beta1)) * (g - from.oldM(i));
      v[j] = s.beta2 * from.oldV(i) + (1 - double(s.beta2)) * g * g;
      double update = s.lr / s.correction1 * m[j] / (std::sqrt(v[j] / s.correction2) + s.eps);
      double p = from.p[i] * (1 - double(s.lr) * s.decay) - update;
      EXPECT_NEAR(to.p[i], p, 1e-6 + 1e-5 * std::abs(update));
      EXPECT_EQ(float(to.copy[i]), float(bf16(to.p[i])));
      topM = std::max(topM, std::abs(m[j]));
      topV = std::max(topV, v[j]);
      updateSq += (p - from.p[i]) * (p - from.p[i]);
      paramSq += p * p;
    }
    EXPECT_NEAR(to.mScale[block], topM, 1e-6 * topM);
    EXPECT_NEAR(to.vScale[block], topV, 1e-6 * topV);
    EXPECT_NEAR(to.updateSq[block], updateSq, 1e-4 * updateSq);
    EXPECT_NEAR(to.paramSq[block], paramSq, 1e-5 * paramSq);
    for (size_t j = 0; j < 256; ++j) {
      size_t i = block * 256 + j;
      double wantM = std::copysign(127 * std::pow(std::abs(m[j]) / topM, 0.25), m[j]);
      double wantV = 255 * std::pow(v[j] / topV, 0.125);
      EXPECT_NEAR(to.m[i], wantM, 0.501);
      EXPECT_NEAR(uint8_t(to.v[i]), std::max(wantV, 1.0), 0.501);
      farther += to.m[i] != std::lround(wantM);
    }
  }
  EXPECT_LE(farther, 2);
}

TEST_F(ConvertAdamW8bit, WritesInPlaceAndInAnyPieces) {
  for (auto [result, input] : {std::pair{0u, 0u}, {1u, 2u}, {2u, 3u}, {3u, 4u}, {4u, 5u}})
    EXPECT_TRUE(kernel.mayShare(result, input)) << result;
  State from(3), apart(4), inPlace(3);
  run(kernel, from, apart, {}, 0, kBlocks);
  for (auto [begin, end] : {std::pair{3, 7}, {0, 1}, {1, 3}})
    run(kernel, inPlace, inPlace, {}, begin, end);
  expectSameState(apart, inPlace);
  EXPECT_EQ(apart.updateSq, inPlace.updateSq);
}

TEST_F(ConvertAdamW8bit, ANonFiniteNormLeavesEverything) {
  for (float norm : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    State from(5), to(5), fresh(6);
    fresh.m.assign(kElements, 0); // as they start: no scale yet
    fresh.v.assign(kElements, 0);
    fresh.mScale.assign(kBlocks, 0);
    fresh.vScale.assign(kBlocks, 0);
    from.g[300] = norm;
    Scalars s;
    s.norm = norm;
    run(kernel, from, to, s, 0, kBlocks);
    expectSameState(from, to);
    EXPECT_EQ(to.updateSq, std::vector<float>(kBlocks, 0.0f));
    State kept = fresh;
    run(kernel, kept, kept, s, 0, kBlocks);
    expectSameState(fresh, kept);
  }
}

// Gradients of zero, of numbers whose squares are subnormal, and next to much larger ones: no
// update is larger than AdamW's largest, and what has no gradient does not move.
TEST_F(ConvertAdamW8bit, SmallSecondMomentsNeverBlowUpAnUpdate) {
  State state(7);
  state.m.assign(kElements, 0);
  state.v.assign(kElements, 0);
  state.mScale.assign(kBlocks, 0);
  state.vScale.assign(kBlocks, 0);
  std::vector<float> start = state.p;
  Scalars s;
  s.clip = s.decay = 0;
  s.eps = 1e-20f;
  const double sizes[] = {0, 1e-22, 1e-12, 1e-3, 1};
  for (int step = 1; step <= 60; ++step) {
    s.correction1 = 1 - std::pow(0.9f, float(step));
    s.correction2 = 1 - std::pow(0.95f, float(step));
    for (size_t i = 0; i < size_t(kElements); ++i)
      state.g[i] = i < 256 ? 0 : float(sizes[i % 5] * (step <= 20 ? 1 : 1e-6));
    std::vector<float> before = state.p;
    run(kernel, state, state, s, 0, kBlocks);
    for (size_t i = 0; i < size_t(kElements); ++i) {
      // With |g| growing never, |m| / sqrt(v) stays below (1 - beta1) / sqrt(1 - beta2) over
      // sqrt(1 - beta1^2 / beta2), 1.2, before rounding.
      ASSERT_LE(std::abs(state.p[i] - before[i]), 2.5 * double(s.lr)) << i << " in " << step;
      if (i < 256 || i % 5 == 0) {
        ASSERT_EQ(state.p[i], start[i]) << i;
      }
    }
  }
  for (size_t i = 259; i < size_t(kElements); i += 5) // those with gradients of 1
    EXPECT_LT(state.p[i], start[i] - 0.1f) << i;
}

} // namespace
