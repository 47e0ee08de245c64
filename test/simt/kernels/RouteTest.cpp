// The kernels of the router of a mixture of experts, against loops in f64.
#include "compiler/targets/cuda/templates/RouteTemplates.h"
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelArgument.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace lmc;
using namespace lmc::simt;
using codegen::CudaKernel;
using codegen::RouteShape;
using cpu::Storage;

namespace {

class Route {
public:
  Route(const RouteShape &shape, uint64_t seed, double scale = 2)
      : shape(shape), random(seed), type(shape.type == DataType::F64   ? Storage::F64
                                         : shape.type == DataType::F32 ? Storage::F32
                                                                       : Storage::BF16),
        real(shape.type == DataType::F64 ? Storage::F64 : Storage::F32),
        logits(cpu::test::Values::random(type, shape.tokens * shape.experts, random, scale)),
        bias(cpu::test::Values::random(real, shape.experts, random, 0.5)) {}

  void check() {
    using cpu::test::Values;
    const int64_t experts = shape.experts, k = shape.chosen, choices = shape.tokens * k;
    std::vector<double> p(static_cast<size_t>(shape.tokens * experts)), weights;
    std::vector<double> counts(static_cast<size_t>(experts), 0), mass(counts);
    std::vector<int32_t> chosen;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      double *row = p.data() + t * experts, sum = 0, top = 0;
      for (int64_t e = 0; e < experts; ++e)
        sum += row[e] = shape.sigmoid ? 1 / (1 + std::exp(-logits[t * experts + e]))
                                      : std::exp(logits[t * experts + e] - logits[t * experts]);
      for (int64_t e = 0; e < experts; ++e) {
        mass[size_t(e)] += row[e] / sum;
        row[e] /= shape.sigmoid ? 1 : sum;
      }
      std::vector<int32_t> order(static_cast<size_t>(experts));
      std::iota(order.begin(), order.end(), 0);
      // By the logits, which f32 may bring nearer to each other but does not exchange. With a bias,
      // by the sums in f64: those that are drawn here are further apart than f32 rounds.
      auto score = [&](int32_t e) {
        return shape.bias ? row[e] + bias[e] : logits[t * experts + e];
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](int32_t a, int32_t b) { return score(a) > score(b); });
      for (int64_t j = 0; j < k; ++j)
        top += row[order[size_t(j)]];
      for (int64_t j = 0; j < k; ++j) {
        chosen.push_back(order[size_t(j)]);
        counts[size_t(order[size_t(j)])] += 1;
        weights.push_back(shape.scale * row[order[size_t(j)]] / (shape.normalize ? top : 1));
      }
    }
    const double allowed = real == Storage::F64 ? 1e-12 : 1e-5;
    const auto kernels = routeKernels(shape);
    auto empty = [](Storage storage, int64_t elements) {
      return KernelArgument(Values(storage, elements), Access::ReadWrite);
    };
    const std::vector<char> workspace(size_t(shape.workspaceBytes()), char(0xff));
    std::vector<KernelArgument> first{{logits, Access::Read}};
    if (shape.bias)
      first.push_back({bias, Access::Read});
    const size_t made = first.size(); // the first argument that is written
    first.push_back(empty(real, choices));
    first.push_back(
        {std::vector<int32_t>(size_t(choices), -1).data(), size_t(choices) * 4, Access::ReadWrite});
    first.push_back({workspace.data(), workspace.size(), Access::ReadWrite});
    ASSERT_NO_FATAL_FAILURE(run(kernels[0], first));
    std::vector<int32_t> found(static_cast<size_t>(choices));
    first[made + 1].to(found.data());
    ASSERT_EQ(found, chosen);
    first[made + 2].access = Access::Read;
    std::vector<KernelArgument> second{first[made + 2], empty(real, experts), empty(real, experts)};
    ASSERT_NO_FATAL_FAILURE(run(kernels[1], second));
    compare(first[made], real, weights, allowed);
    compare(second[1], real, counts, 0);
    compare(second[2], real, mass, allowed);

    const Values dweights = Values::random(real, choices, random);
    const Values dmass = Values::random(real, experts, random);
    std::vector<double> dlogits(p.size());
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const double *row = p.data() + t * experts;
      std::vector<double> dp(static_cast<size_t>(experts));
      double sum = 0, along = 0, inner = 0;
      for (int64_t j = 0; j < k; ++j)
        sum += row[chosen[size_t(t * k + j)]];
      for (int64_t j = 0; j < k; ++j)
        along += shape.scale * dweights[t * k + j] * row[chosen[size_t(t * k + j)]] / sum;
      for (int64_t e = 0; e < experts; ++e)
        dp[size_t(e)] = shape.mass ? dmass[e] : 0;
      for (int64_t j = 0; j < k; ++j)
        dp[size_t(chosen[size_t(t * k + j)])] +=
            shape.normalize ? (shape.scale * dweights[t * k + j] - along) / sum
                            : shape.scale * dweights[t * k + j];
      for (int64_t e = 0; e < experts; ++e)
        inner += row[e] * dp[size_t(e)];
      for (int64_t e = 0; e < experts; ++e)
        dlogits[size_t(t * experts + e)] =
            row[e] * (shape.sigmoid ? dp[size_t(e)] * (1 - row[e]) : dp[size_t(e)] - inner);
    }
    std::vector<KernelArgument> gradient{{logits, Access::Read},
                                         {chosen.data(), size_t(choices) * 4, Access::Read},
                                         {dweights, Access::Read}};
    if (shape.mass)
      gradient.push_back({dmass, Access::Read});
    gradient.push_back(empty(type, shape.tokens * experts));
    ASSERT_NO_FATAL_FAILURE(run(routeGradKernel(shape), gradient));
    compare(gradient.back(), type, dlogits, type == Storage::BF16 ? 4e-3 : allowed);
  }

  const RouteShape shape;
  std::mt19937_64 random;
  const Storage type, real;
  cpu::test::Values logits, bias;

private:
  static void compare(const KernelArgument &argument, Storage storage,
                      const std::vector<double> &expected, double bound) {
    cpu::test::Values result(storage, int64_t(expected.size()));
    argument.to(result.data());
    EXPECT_LE(cpu::test::error(result, expected), bound);
  }

  // Runs a kernel, and holds it to the bytes that it says it moves.
  static void run(const CudaKernel &text, std::vector<KernelArgument> &arguments) {
    SCOPED_TRACE(text.name);
    auto kernel = std::move(compile(std::vector<Source>{sourceOf(text)}).front());
    ASSERT_TRUE(bool(kernel)) << kernel.error().message;
    std::vector<Argument> passed;
    for (KernelArgument &each : arguments)
      passed.push_back({each.lines.data(), each.size, each.access});
    const RunResult result = runTwice(*kernel, passed, 1, /*count=*/true);
    ASSERT_EQ(result.failure, "");
    EXPECT_FALSE(result.atomics);
    uint64_t read = 0, written = 0;
    for (const Traffic &each : result.traffic) {
      read += each.distinctLoaded;
      written += each.distinctStored;
    }
    EXPECT_EQ(read, text.bytes.read);
    EXPECT_EQ(written, text.bytes.written);
  }
};

} // namespace

TEST(RouteKernels, ChooseAndWeigh) {
  Route({130, 8, 2, DataType::BF16, true, true}, 1).check();
  Route({77, 60, 8, DataType::F32, false, true}, 2).check();
  Route({65, 5, 3, DataType::F64, true, false}, 3).check();
  Route({64, 128, 8, DataType::BF16, true, true}, 4).check();
  Route({1, 1, 1, DataType::F32, true, false}, 5).check();
  Route({20, 1023, 32, DataType::F32, true, true}, 6).check();
}

// Sigmoids and a bias that may be below any of them.
TEST(RouteKernels, SigmoidsWithABias) {
  Route({130, 8, 2, DataType::BF16, true, false, true, true, 2.5}, 1).check();
  Route({77, 60, 8, DataType::F32, false, false, true, false, 0.5}, 2).check();
  Route({65, 37, 6, DataType::F64, true, false, true, true, 1}, 3).check();
  Route({33, 40, 4, DataType::F32, true, true, false, true, 2}, 4).check();
  Route low({50, 40, 4, DataType::F32, true, false, true, true, 2}, 5);
  for (int64_t e = 0; e < low.bias.size(); ++e)
    low.bias.set(e, low.bias[e] - 3);
  low.check();
}

// Of equal experts the lower number comes first, also where all are equal.
TEST(RouteKernels, TiesGoToTheLowerNumber) {
  Route({70, 40, 6, DataType::F32, true, true}, 1, 0).check();
  Route few({70, 70, 6, DataType::F32, false, true}, 2);
  for (int64_t i = 0; i < few.logits.size(); ++i)
    few.logits.set(i, std::round(few.logits[i]));
  few.check();
}

TEST(RouteKernels, DrawnShapes) {
  for (int64_t seed = 1, last = drawCount(8); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    RouteShape shape;
    shape.tokens = draw.extent(400);
    shape.experts = draw.extent(300);
    shape.chosen = std::min(shape.experts, draw.between(1, 12));
    shape.type = draw.pick({DataType::BF16, DataType::F32, DataType::F64});
    shape.normalize = draw.oneIn(2);
    shape.sigmoid = draw.oneIn(3);
    shape.bias = shape.type == DataType::F64 && draw.oneIn(2);
    shape.scale = draw.oneIn(3) ? 2.5 : 1;
    shape.mass = !shape.sigmoid && draw.oneIn(2);
    SCOPED_TRACE("seed " + std::to_string(seed));
    Route(shape, uint64_t(seed)).check();
    if (HasFatalFailure())
      return;
  }
}
