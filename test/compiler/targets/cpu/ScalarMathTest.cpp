// The functions that kernels compute themselves, against libm in double precision.
#include "test/compiler/targets/cpu/KernelRunner.h"

#include "ground/plan/FloatConvert.h"

#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <tuple>

using namespace lmc::codegen;
using namespace lmc::codegen::test;

namespace {

std::string unary(const char *op, size_t count, const char *from = "f32", const char *to = "f32") {
  return substitute(R"(
#i = affine_map<(i) -> (i)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<$Nx$from>):
  %e = tensor.empty() : tensor<$Nx$to>
  %y = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<$Nx$from>) outs(%e : tensor<$Nx$to>) {
  ^bb0(%a: $from, %o: $to):
    %z = $op
    linalg.yield %z : $to
  } -> tensor<$Nx$to>
  kern.yield %y : tensor<$Nx$to>
})",
                    {{"N", std::to_string(count)}, {"op", op}, {"from", from}, {"to", to}});
}

// Every 4099th f32, and the values where functions bend.
std::vector<float> sweep() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 4099) {
    uint32_t word = uint32_t(bits);
    float value;
    std::memcpy(&value, &word, 4);
    values.push_back(value);
  }
  const float inf = std::numeric_limits<float>::infinity();
  for (float value :
       {0.0f,      -0.0f,      1.0f,       -1.0f,     inf,       -inf,   NAN,
        88.72283f, 88.72284f,  -87.33655f, -103.972f, -103.973f, 1e-45f, 1.17549435e-38f,
        0.625f,    0.7071068f, 89.f,       -104.f,    3e38f,     -3e38f})
    values.push_back(value);
  return values;
}

double unitInLastPlace(double value) {
  float magnitude = std::abs(float(value));
  if (std::isinf(magnitude))
    magnitude = std::numeric_limits<float>::max();
  return std::max(double(std::nextafter(magnitude, INFINITY)) - magnitude, 0x1p-149);
}

void check(const char *op, double (*exact)(double), double ulps) {
  std::vector<float> x = sweep(), y(x.size());
  for (CpuTarget target : {CpuTarget{"x86-64"}, CpuTarget{"native"}}) {
    Kernel kernel(unary(op, x.size()), target);
    ASSERT_EQ(kernel.error(), "");
    kernel.run({x.data(), y.data()});
    double worst = 0;
    float where = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      double want = exact(x[i]);
      if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(y[i])) << op << " of " << x[i];
        continue;
      }
      if (std::isinf(float(want)) || std::isinf(y[i])) {
        // At the edge of overflow one unit may decide.
        ASSERT_TRUE(y[i] == float(want) ||
                    std::abs(double(want)) > 0.9999999 * std::numeric_limits<float>::max())
            << op << " of " << x[i] << " is " << y[i];
        continue;
      }
      double error = std::abs(y[i] - want) / unitInLastPlace(want);
      if (error > worst) {
        worst = error;
        where = x[i];
      }
    }
    testing::Test::RecordProperty(target.cpu, std::to_string(worst));
    EXPECT_LE(worst, ulps) << op << " on " << target.cpu << ", worst at " << where;
  }
}

TEST(ScalarMath, exp) { check("math.exp %a : f32", std::exp, 2); }
TEST(ScalarMath, log) { check("math.log %a : f32", std::log, 2); }
TEST(ScalarMath, tanh) { check("math.tanh %a : f32", std::tanh, 2); }
TEST(ScalarMath, sqrt) { check("math.sqrt %a : f32", std::sqrt, 0.5); }
TEST(ScalarMath, erfThroughLibm) { check("math.erf %a : f32", std::erf, 2); }

// All numbers of a format, what lies between two of them, and a sweep of all floats.
TEST(ScalarMath, eightBitsAreThoseOfTheRuntime) {
  for (const auto &[format, toCode, fromCode] :
       {std::tuple("f8E4M3FN", &lmc::toE4M3, &lmc::fromE4M3),
        std::tuple("f8E5M2", &lmc::toE5M2, &lmc::fromE5M2)}) {
    std::vector<float> x = sweep();
    for (int code = 0; code < 255; ++code) {
      const float value = fromCode(uint8_t(code));
      const float tie = (value + fromCode(uint8_t(code + 1))) / 2;
      for (float near : {value, std::nextafter(tie, 0.0f), tie, std::nextafter(tie, INFINITY)})
        x.push_back(near);
    }
    std::vector<uint8_t> y(x.size());
    const std::string op = std::string("arith.truncf %a : f32 to ") + format;
    for (CpuTarget target : {CpuTarget{"x86-64"}, CpuTarget{"native"}}) {
      Kernel kernel(unary(op.c_str(), x.size(), "f32", format), target);
      ASSERT_EQ(kernel.error(), "");
      kernel.run({x.data(), y.data()});
      for (size_t i = 0; i < x.size(); ++i)
        ASSERT_EQ(y[i], toCode(x[i])) << x[i] << " as " << format;
    }
  }
}

TEST(ScalarMath, eightBitsExtendExactly) {
  for (const auto &[format, fromCode] :
       {std::pair("f8E4M3FN", &lmc::fromE4M3), std::pair("f8E5M2", &lmc::fromE5M2)}) {
    std::vector<uint8_t> x(256);
    for (size_t code = 0; code < x.size(); ++code)
      x[code] = uint8_t(code);
    std::vector<float> y(x.size());
    const std::string op = std::string("arith.extf %a : ") + format + " to f32";
    for (CpuTarget target : {CpuTarget{"x86-64"}, CpuTarget{"native"}}) {
      Kernel kernel(unary(op.c_str(), x.size(), format, "f32"), target);
      ASSERT_EQ(kernel.error(), "");
      kernel.run({x.data(), y.data()});
      for (size_t code = 0; code < x.size(); ++code) {
        const float want = fromCode(x[code]);
        ASSERT_TRUE(y[code] == want || (std::isnan(y[code]) && std::isnan(want)))
            << code << " of " << format << " is " << y[code] << ", not " << want;
        ASSERT_EQ(std::signbit(y[code]), code >= 128) << code << " of " << format;
      }
    }
  }
}

TEST(ScalarMath, bf16RoundsToNearestEven) {
  std::vector<float> x = sweep();
  for (uint32_t upper = 0; upper < 0x10000; ++upper)
    for (uint32_t lower : {0x7fffu, 0x8000u, 0x8001u}) {
      uint32_t word = upper << 16 | lower;
      float value;
      std::memcpy(&value, &word, 4);
      x.push_back(value);
    }
  std::vector<bf16> y(x.size());
  Kernel kernel(unary("arith.truncf %a : f32 to bf16", x.size(), "f32", "bf16"));
  ASSERT_EQ(kernel.error(), "");
  kernel.run({x.data(), y.data()});
  for (size_t i = 0; i < x.size(); ++i)
    ASSERT_EQ(y[i].bits, bf16(x[i]).bits) << x[i];
}

TEST(ScalarMath, bf16ExtendsExactly) {
  std::vector<bf16> x(0x10000);
  for (uint32_t i = 0; i < x.size(); ++i)
    x[i].bits = uint16_t(i);
  std::vector<float> y(x.size());
  Kernel kernel(unary("arith.extf %a : bf16 to f32", x.size(), "bf16", "f32"));
  ASSERT_EQ(kernel.error(), "");
  kernel.run({x.data(), y.data()});
  for (uint32_t i = 0; i < x.size(); ++i) {
    uint32_t bits;
    std::memcpy(&bits, &y[i], 4);
    ASSERT_EQ(bits, i << 16);
  }
}

} // namespace
