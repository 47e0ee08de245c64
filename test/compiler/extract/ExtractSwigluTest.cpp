// The programs that are extracted for matrix products with SwiGLU, one for each way, compiled for
// the host with plain loops in the place of the kernels. Each must accept the loops, and find each
// mistake that they can be told to make.
#include "test/compiler/extract/HostProgram.h"

#include <gmock/gmock.h>

#include <fmt/format.h>

using namespace lmc;
using namespace lmc::test;
using plan::DType;
using testing::HasSubstr;

namespace {

constexpr uint64_t kGatedRows = 37, kGatedInner = 24, kGatedColumns = 40;

const std::string kGatedStart = fmt::format(R"(
#include <cmath>
#include <cstdlib>
constexpr int kM = {}, kK = {}, kN = {};
static float *at(void **arguments, int i) {{ return *static_cast<float **>(arguments[i]); }}
static const int mistake = std::atoi(std::getenv("MISTAKE"));
static float silu(float g) {{ return g / (1 + std::exp(-g)); }}
)",
                                            kGatedRows, kGatedInner, kGatedColumns);

const char *const kForward = R"({
  const float *gu = at(arguments, 0);
  float *a = at(arguments, 1);
  for (int r = 0; r < kM; ++r)
    for (int c = 0; c < kN; ++c)
      a[r * kN + c] = silu(gu[r * 2 * kN + c]) * gu[r * 2 * kN + kN + c - (mistake == 1 && c == kN - 1)];
  if (mistake == 2)
    a[kM * kN - 1] += 1;
})";

const char *const kForwardWhole = R"({
  const float *x = at(arguments, 0), *w = at(arguments, 1);
  float *gu = at(arguments, 2), *a = at(arguments, 3);
  for (int r = 0; r < kM; ++r) {
    for (int c = 0; c < 2 * kN; ++c) {
      float sum = 0;
      for (int k = 0; k < kK - (mistake == 1); ++k)
        sum += x[r * kK + k] * w[c * kK + k];
      gu[r * 2 * kN + c] = sum;
    }
    for (int c = 0; c < kN; ++c)
      a[r * kN + c] = silu(gu[r * 2 * kN + c]) * gu[r * 2 * kN + kN + c];
  }
  if (mistake == 2)
    a[kM * kN - 1] += 1;
})";

const char *const kGradient = R"(
static void differentiate(float *gu, float *a, int r, int c, float d) {
  float &g = gu[r * 2 * kN + c], &u = gu[r * 2 * kN + kN + c];
  const float s = 1 / (1 + std::exp(-g)), gate = g;
  a[r * kN + c] = mistake == 1 ? d : silu(g) * u;
  g = d * u * s * (1 + g * (1 - s));
  u = mistake == 2 ? d * gate : d * gate * s;
}
)";

const char *const kGradientRows = R"({
  float *gu = at(arguments, 1), *d = at(arguments, 2);
  for (int r = 0; r < kM; ++r)
    for (int c = 0; c < kN; ++c)
      differentiate(gu, d, r, c, d[r * kN + c]);
})";

const char *const kGradientWhole = R"({
  const float *dy = at(arguments, 0), *w = at(arguments, 1);
  float *gu = at(arguments, 3), *a = at(arguments, 4);
  for (int r = 0; r < kM; ++r)
    for (int c = 0; c < kN; ++c) {
      float d = 0;
      for (int k = 0; k < kK; ++k)
        d += dy[r * kK + k] * w[k * kN + c];
      differentiate(gu, a, r, c, d);
    }
})";

struct Way {
  const char *name, *loops;
  std::vector<const char *> mistakes; // what the program says of each
};

std::unique_ptr<plan::GemmT> productOf(uint32_t a, uint32_t b, uint32_t d, uint64_t columns) {
  auto product = std::make_unique<plan::GemmT>();
  product->a = a;
  product->b = b;
  product->d = d;
  product->m = kGatedRows;
  product->n = columns;
  product->k = kGatedInner;
  return product;
}

// Gives the command of `plan` the launches of both ways, whose arguments are `args`, and runs the
// program of each.
void check(CudaPlan &plan, const std::string &start, const std::vector<Way> &ways,
           const std::vector<std::vector<uint32_t>> &args) {
  for (size_t i = 0; i < ways.size(); ++i) {
    auto launch = std::make_unique<plan::LaunchT>();
    launch->args = args[i];
    launch->kernel = plan.kernel(ways[i].name, start + "extern \"C\" void " + ways[i].name +
                                                   "(void **arguments) " + ways[i].loops);
    plan.plan.functions[0]->commands[0]->launches.push_back(std::move(launch));
  }
  for (const Way &way : ways) {
    SCOPED_TRACE(way.name);
    auto text = plan.extract(way.name);
    ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
    HostProgram program;
    ASSERT_TRUE(program.build(*text));
    for (size_t i = 0; i <= way.mistakes.size(); ++i) {
      setenv("MISTAKE", std::to_string(i).c_str(), 1);
      EXPECT_EQ(program.start(), i ? 1 : 0) << "mistake " << i << "\n" << program.log();
      EXPECT_THAT(program.log(), HasSubstr(i ? way.mistakes[i - 1] : "check: 0 of "));
    }
    unsetenv("MISTAKE");
  }
}

} // namespace

TEST(ExtractSwiglu, EachWayOfAProductIsAProgram) {
  CudaPlan plan;
  plan::LinearSwigluT op;
  const uint32_t x = plan.slice(DType::F32, {kGatedRows, kGatedInner});
  const uint32_t w = plan.slice(DType::F32, {2 * kGatedColumns, kGatedInner});
  const uint32_t gu = plan.slice(DType::F32, {kGatedRows, 2 * kGatedColumns});
  op.product = productOf(x, w, gu, 2 * kGatedColumns);
  op.product->transpose_b = true;
  op.a = plan.slice(DType::F32, {kGatedRows, kGatedColumns});
  op.both = true;
  plan.command(op);
  check(plan, kGatedStart,
        {{"behind", kForward, {"a[", "a["}}, {"whole", kForwardWhole, {"gu[", "a["}}},
        {{gu, op.a}, {x, w, gu, op.a}});
}

TEST(ExtractSwiglu, EachWayOfAGradientIsAProgram) {
  for (bool both : {true, false}) {
    CudaPlan plan;
    plan::SwigluLinearGradT op;
    const uint32_t dy = plan.slice(DType::F32, {kGatedRows, kGatedInner});
    const uint32_t w = plan.slice(DType::F32, {kGatedInner, kGatedColumns});
    const uint32_t a = plan.slice(DType::F32, {kGatedRows, kGatedColumns});
    op.product = productOf(dy, w, a, kGatedColumns);
    op.dgu = plan.slice(DType::F32, {kGatedRows, 2 * kGatedColumns});
    op.both = both;
    plan.command(op);
    // Where a is not needed, the first mistake is none.
    const std::vector<const char *> mistakes =
        both ? std::vector<const char *>{"a[", "gu["} : std::vector<const char *>{};
    check(plan, kGatedStart + kGradient,
          {{"behind", kGradientRows, mistakes}, {"whole", kGradientWhole, mistakes}},
          {{op.dgu, op.dgu, a}, {dy, w, op.dgu, op.dgu, a}});
  }
}
