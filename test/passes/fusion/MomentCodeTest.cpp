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
  Value (*decode)(OpBuilder &, Location, Value, Value);
  Value (*encode)(OpBuilder &, Location, Value, Value);
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
  Value result = f.map(decodes ? floats : codes, {{f.arg(0), f.all(1)}, {f.arg(1), f.none(1)}},
                       [&](OpBuilder &at, Location loc, ValueRange s) {
                         return (decodes ? moment.decode : moment.encode)(at, loc, s[0], s[1]);
                       });
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

TEST(MomentCode, OnlyAFirstMomentIsRoundedToZero) {
  std::vector<float> small{1e-12f, 1e-20f, 1e-30f, 1e-38f, 1e-44f, 0.0f};
  EXPECT_EQ(encode(kMoments[1], small, 1.0f), (std::vector<int8_t>{8, 1, 1, 1, 1, 0}));
  std::vector<float> both{3e-10f, -3e-10f, 2e-10f, -2e-10f, -0.0f};
  EXPECT_EQ(encode(kMoments[0], both, 1.0f), (std::vector<int8_t>{1, -1, 0, 0, 0}));
}

} // namespace
