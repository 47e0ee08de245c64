// The 8-bit codes of moments, as the kernels compute them: every code there is, and values over
// many decades.
#include "passes/fusion/MomentCode.h"

#include "test/passes/fusion/KernelOf.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace lmc;
using namespace lmc::codegen::test;
using mlir::Location;
using mlir::OpBuilder;
using mlir::RankedTensorType;
using mlir::Value;
using mlir::ValueRange;

namespace {

struct Moment {
  const char *name;
  Scalar (*decode)(Scalar, Scalar);
  Scalar (*encode)(Scalar, Scalar);
  int least, largest; // codes
  double root;        // decoded = scale (code / largest)^root
};
const Moment kMoments[] = {{"moment1", decodeMoment1, encodeMoment1, -127, 127, 4},
                           {"moment2", decodeMoment2, encodeMoment2, 0, 255, 8}};

// An elementwise kernel over `count` elements and a scalar.
std::string mapText(int64_t count, bool decodes, const Moment &moment) {
  FusionScope scope;
  OpBuilder &b = scope.b();
  auto codes = RankedTensorType::get({count}, b.getI8Type());
  auto floats = RankedTensorType::get({count}, b.getF32Type());
  ValueRange arguments = scope.arguments(
      {decodes ? codes : floats, RankedTensorType::get({}, b.getF32Type())});
  FusionBuilder f(b, scope.loc(), kern::Hero::Elementwise, arguments, "test");
  Value result =
      f.map(decodes ? floats : codes, {{f.arg(0), f.all(1)}, {f.arg(1), f.none(1)}},
            [&](Elements s) { return (decodes ? moment.decode : moment.encode)(s[0], s[1]); });
  return scope.kernelText(f.finish(result));
}

std::vector<float> decode(const Moment &moment, std::vector<int8_t> codes, float scale) {
  Kernel kernel(mapText(int64_t(codes.size()), true, moment));
  EXPECT_EQ(kernel.error(), "");
  std::vector<float> values(codes.size());
  kernel.run({codes.data(), &scale, values.data()});
  return values;
}

std::vector<int8_t> encode(const Moment &moment, std::vector<float> values, float inverse) {
  Kernel kernel(mapText(int64_t(values.size()), false, moment));
  EXPECT_EQ(kernel.error(), "");
  std::vector<int8_t> codes(values.size());
  kernel.run({values.data(), &inverse, codes.data()});
  return codes;
}

std::vector<int8_t> allCodes(const Moment &moment) {
  std::vector<int8_t> codes;
  for (int c = moment.least; c <= moment.largest; ++c)
    codes.push_back(int8_t(c));
  return codes;
}

TEST(MomentCode, EveryCodeComesBackAndTheyAreInOrder) {
  for (const Moment &moment : kMoments)
    for (float scale : {1e-18f, 3e-7f, 1.0f, 5.5e11f}) {
      SCOPED_TRACE(std::string(moment.name) + ", scale " + std::to_string(scale));
      std::vector<float> values = decode(moment, allCodes(moment), scale);
      for (size_t i = 1; i < values.size(); ++i)
        EXPECT_LT(values[i - 1], values[i]) << i;
      EXPECT_EQ(values.back(), scale);
      EXPECT_EQ(values[size_t(-moment.least)], 0.0f) << "code 0, which state starts as";
      EXPECT_EQ(encode(moment, values, 1 / scale), allCodes(moment));
    }
}

TEST(MomentCode, DecodesThePowersOfItsDescription) {
  for (const Moment &moment : kMoments) {
    std::vector<int8_t> codes = allCodes(moment);
    std::vector<float> values = decode(moment, codes, 3.0f);
    for (int c = moment.least; c <= moment.largest; ++c) {
      double want = 3 * std::pow(std::abs(c) / double(moment.largest), moment.root);
      want = c < 0 ? -want : want;
      EXPECT_NEAR(values[size_t(c - moment.least)], want, 1e-6 * std::abs(want)) << c;
    }
  }
}

// Of moment1 and of sqrt(moment2), over seven decades below the largest: half a step of the
// root. The figures of MomentCode.h are three of these.
TEST(MomentCode, RelativeErrorIsHalfAStep) {
  for (const Moment &moment : kMoments) {
    const double power = moment.root == 8 ? 2 : 1; // of what an update divides by
    std::vector<float> values;
    for (double x = 1; x > 1e-7; x *= 0.9993)
      values.push_back(float(std::pow(x, power)));
    std::vector<float> back = decode(moment, encode(moment, values, 1.0f), 1.0f);
    auto worstAbove = [&](double least, double most) {
      double worst = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        double x = std::pow(double(values[i]), 1 / power);
        if (x >= least && x <= most)
          worst = std::max(worst, std::abs(std::pow(double(back[i]), 1 / power) / x - 1));
      }
      return worst;
    };
    for (size_t i = 0; i < values.size(); ++i) {
      double x = std::pow(double(values[i]), 1 / power);
      double code = moment.largest * std::pow(x, 0.25);
      double bound = std::pow((std::floor(code) + 1) / (std::floor(code) + 0.5), 4) - 1;
      EXPECT_LE(std::abs(std::pow(double(back[i]), 1 / power) / x - 1), bound * 1.0001) << x;
    }
    const double half = power == 2 ? 0.52 : 1;
    EXPECT_LE(worstAbove(0.9, 1), 0.016 * 1.03 * half) << moment.name;
    EXPECT_LE(worstAbove(0.01, 1), 0.052 * half) << moment.name;
    EXPECT_LE(worstAbove(1e-4, 1), 0.16 * half) << moment.name;
    EXPECT_GE(worstAbove(1e-4, 1), 0.14 * half) << "the bounds are of this code";
    std::printf("%s: %.2f%% near the largest, %.1f%% at a hundredth, %.1f%% at a ten-thousandth\n",
                power == 2 ? "sqrt(moment2)" : "moment1", 100 * worstAbove(0.9, 1),
                100 * worstAbove(0.0095, 0.0105), 100 * worstAbove(0.95e-4, 1.05e-4));
  }
}

// A moment that nothing is added to, beside a larger one that keeps the scale: for each beta the
// least code that a step still lowers, as a part of the largest; moment2's as a part of the
// largest root. 1.0: no code is lowered. The figures of MomentCode.h are the second moment's.
TEST(MomentCode, ADecayOfLessThanHalfACodeLeavesItWhereItIs) {
  const float betas[] = {0.9f, 0.95f, 0.98f, 0.985f, 0.99f, 0.999f};
  // From c (1 - beta^(1 / k)) = half a code, of a moment that is the k-th power of its code.
  const double wanted[2][6] = {{6.2e-4, 0.0098, 0.384, 1, 1, 1}, {5.5e-4, 0.0092, 0.371, 1, 1, 1}};
  for (const Moment &moment : kMoments) {
    const bool isSecond = moment.root == 8;
    std::vector<int8_t> codes = allCodes(moment);
    codes.erase(codes.begin(), codes.begin() + (1 - moment.least)); // the positive ones
    std::vector<float> values = decode(moment, codes, 1.0f), decayed;
    for (float beta : betas)
      for (float value : values)
        decayed.push_back(beta * value);
    std::vector<int8_t> after = encode(moment, decayed, 1.0f);
    for (size_t i = 0; i < std::size(betas); ++i) {
      double least = 1;
      for (size_t c = codes.size(); c-- > 0;)
        if (after[i * codes.size() + c] != codes[c])
          least = isSecond ? std::sqrt(values[c]) : values[c];
      std::printf("%s, beta %.3f: falls down to %.4f of the largest\n",
                  isSecond ? "sqrt(moment2)" : "moment1", double(betas[i]), least);
      EXPECT_NEAR(least, wanted[isSecond][i], 0.05 * wanted[isSecond][i]) << betas[i];
    }
  }
}

// Gradients of one element fall to a hundredth of what they were, beside one whose stay: after
// 20000 steps the root of its second moment in 8 bits over the one in f32, as MomentCode.h has it.
TEST(MomentCode, ASecondMomentFollowsSmallerGradientsWithALowBeta2) {
  const Moment &moment = kMoments[1];
  const float square = 1e-4f;
  auto excess = [&](float beta2) {
    std::vector<float> next = decode(moment, allCodes(moment), 1.0f);
    for (float &value : next)
      value = beta2 * value + (1 - beta2) * square;
    std::vector<int8_t> after = encode(moment, next, 1.0f); // by code
    uint8_t code = 255;
    double exact = 1;
    for (int step = 0; step < 20000; ++step) {
      code = uint8_t(after[code]);
      exact = double(beta2) * exact + (1 - double(beta2)) * double(square);
    }
    const double held = decode(moment, {int8_t(code)}, 1.0f)[0];
    std::printf("beta2 %.3f: %.2f times the root of f32's\n", double(beta2),
                std::sqrt(held / exact));
    return std::sqrt(held / exact);
  };
  EXPECT_NEAR(excess(0.9f), 1.3, 0.05);
  EXPECT_NEAR(excess(0.95f), 2.2, 0.05);
  EXPECT_NEAR(excess(0.98f), 36, 1);
  EXPECT_NEAR(excess(0.99f), 100, 1);
  EXPECT_NEAR(excess(0.999f), 100, 1);
}

TEST(MomentCode, OnlyAFirstMomentIsRoundedToZero) {
  std::vector<float> small{1e-12f, 1e-20f, 1e-30f, 1e-38f, 1e-44f, 0.0f};
  EXPECT_EQ(encode(kMoments[1], small, 1.0f), (std::vector<int8_t>{8, 1, 1, 1, 1, 0}));
  std::vector<float> both{3e-10f, -3e-10f, 2e-10f, -2e-10f, -0.0f};
  EXPECT_EQ(encode(kMoments[0], both, 1.0f), (std::vector<int8_t>{1, -1, 0, 0, 0}));
}

} // namespace
