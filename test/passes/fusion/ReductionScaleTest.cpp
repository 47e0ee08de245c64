// Gradients that travel between ranks in f16: no sum of them overflows, and what rounding costs.
#include "passes/fusion/ReductionScale.h"

#include "ground/plan/FloatConvert.h"
#include "test/passes/fusion/KernelOf.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <random>

using namespace lmc;
using namespace lmc::codegen::test;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

constexpr float kLargestF16 = 65504, kInfinity = std::numeric_limits<float>::infinity();

// The kernel of lm.scaled_cast for `count` elements.
std::string castText(int64_t count, int64_t ranks, bool toF16) {
  FusionScope scope;
  mlir::OpBuilder &b = scope.b();
  auto wide = RankedTensorType::get({count}, b.getF32Type());
  auto narrow = RankedTensorType::get({count}, b.getF16Type());
  ValueRange arguments = scope.arguments(
      {toF16 ? wide : narrow, RankedTensorType::get({}, b.getF32Type())});
  FusionBuilder f(b, scope.loc(), kern::Hero::Elementwise, arguments, "test");
  Value result =
      f.map(toF16 ? narrow : wide, {{f.arg(0), f.all(1)}, {f.arg(1), f.none(1)}},
            [&](Elements s) { return s[0] * reductionScale(s[1], ranks, /*inverse=*/!toF16); });
  return scope.kernelText(f.finish(result));
}

std::vector<uint16_t> narrow(std::vector<float> x, float largest, int64_t ranks) {
  Kernel kernel(castText(int64_t(x.size()), ranks, true));
  EXPECT_EQ(kernel.error(), "");
  std::vector<uint16_t> d(x.size());
  kernel.run({x.data(), &largest, d.data()});
  return d;
}

std::vector<float> widen(std::vector<uint16_t> x, float largest, int64_t ranks) {
  Kernel kernel(castText(int64_t(x.size()), ranks, false));
  EXPECT_EQ(kernel.error(), "");
  std::vector<float> d(x.size());
  kernel.run({x.data(), &largest, d.data()});
  return d;
}

TEST(ReductionScale, SumsOverRanksAreNearAndFiniteWhateverTheGradientsAre) {
  constexpr size_t kCount = 300;
  std::mt19937_64 random(7);
  for (int64_t ranks : {1, 2, 3, 8, 1000})
    for (float size : {1e-30f, 1e-12f, 1.0f, 1e6f, 3e30f}) {
      SCOPED_TRACE(std::to_string(ranks) + " ranks, " + std::to_string(size));
      // Gradients of several ranks, one after the other: of all sizes below the largest, and one that
      // is the largest on all ranks.
      const size_t several = size_t(std::min<int64_t>(ranks, 8));
      std::vector<float> gradients;
      while (gradients.size() < several * kCount)
        gradients.push_back(gradients.size() % kCount == 0
                                ? size
                                : size * std::ldexp(float(random() % 2001) / 1000 - 1,
                                                    -int(random() % 30)));
      const std::vector<uint16_t> travels = narrow(gradients, size, ranks);
      std::vector<double> sum(kCount), terms(kCount);
      std::vector<float> shortSum(kCount);
      for (size_t i = 0; i < gradients.size(); ++i) {
        sum[i % kCount] += gradients[i];
        terms[i % kCount] += std::fabs(gradients[i]);
        shortSum[i % kCount] += fromFloat16(travels[i]);
      }
      // All ranks with the largest gradient, added in f16 as NCCL does.
      float inF16 = 0;
      const float each = fromFloat16(travels[0]);
      for (int64_t rank = 0; rank < ranks; ++rank)
        inF16 = fromFloat16(toFloat16(inF16 + each));
      EXPECT_LE(inF16, kLargestF16);
      EXPECT_GE(each * float(ranks), 4096) << "uses the range";

      std::vector<uint16_t> rounded(kCount);
      for (size_t i = 0; i < kCount; ++i)
        rounded[i] = toFloat16(shortSum[i]);
      const std::vector<float> result = widen(rounded, size, ranks);
      const double roundings = double(several) + 1;
      for (size_t i = 0; i < kCount; ++i)
        EXPECT_LE(std::fabs(result[i] - sum[i]),
                  0x1p-11 * (terms[i] + std::fabs(sum[i])) * 1.001 +
                      roundings * 0x1p-37 * double(ranks) * size)
            << i;
    }
}

TEST(ReductionScale, ZerosStayZeroAndInfinityAndNaNArrive) {
  constexpr int64_t kRanks = 8;
  EXPECT_EQ(widen(narrow({0, -0.0f, 0, 0}, 0, kRanks), 0, kRanks), std::vector<float>(4, 0));
  const std::vector<float> x{1, kInfinity, -kInfinity, std::nanf("")};
  for (float largest : {kInfinity, std::nanf(""), -std::nanf("")}) {
    const std::vector<float> d = widen(narrow(x, largest, kRanks), largest, kRanks);
    EXPECT_TRUE(std::isfinite(d[0]));
    EXPECT_EQ(d[1], kInfinity);
    EXPECT_EQ(d[2], -kInfinity);
    EXPECT_TRUE(std::isnan(d[3]));
  }
}

// The scales of 8-bit floats, by a kernel.
std::vector<float> fp8Scales(std::vector<float> largest, bool isE5M2) {
  FusionScope scope;
  mlir::OpBuilder &b = scope.b();
  auto type = RankedTensorType::get({int64_t(largest.size())}, b.getF32Type());
  mlir::FloatType format = isE5M2 ? mlir::FloatType(b.getType<mlir::Float8E5M2Type>())
                                  : mlir::FloatType(b.getType<mlir::Float8E4M3FNType>());
  FusionBuilder f(b, scope.loc(), kern::Hero::Elementwise, scope.arguments({type}), "test");
  Value result =
      f.map(type, {{f.arg(0), f.all(1)}}, [&](Elements s) { return fp8Scale(s[0], format); });
  Kernel kernel(scope.kernelText(f.finish(result)));
  EXPECT_EQ(kernel.error(), "");
  std::vector<float> scales(largest.size());
  kernel.run({largest.data(), scales.data()});
  return scales;
}

TEST(Fp8Scale, IsTheSmallestPowerOfTwoThatFits) {
  for (const auto &[isE5M2, most] : {std::pair(false, 448.0), std::pair(true, 57344.0)}) {
    std::vector<float> largest{0, 1e-45f, 1e-38f, 1, kInfinity};
    for (int power = -140; power < 128; ++power)
      for (double mantissa : {1.0, 1.5, 1.75, 1.9}) {
        const float value = float(std::ldexp(mantissa, power));
        for (float near : {std::nextafter(value, 0.0f), value, std::nextafter(value, kInfinity)})
          if (near < kInfinity)
            largest.push_back(near);
      }
    largest.push_back(std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> scales = fp8Scales(largest, isE5M2);
    for (size_t i = 0; i < largest.size(); ++i) {
      const double x = double(largest[i]), s = double(scales[i]);
      SCOPED_TRACE(std::to_string(x));
      if (!std::isfinite(x)) {
        EXPECT_FALSE(std::isfinite(s));
        continue;
      }
      int exponent = 0;
      EXPECT_EQ(std::frexp(s, &exponent), 0.5);
      EXPECT_GE(s, 0x1p-126);
      EXPECT_LE(x / s, most);
      EXPECT_TRUE(s == 0x1p-126 || x / (s / 2) > most);
    }
  }
}

} // namespace
