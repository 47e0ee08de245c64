// The gradients of the commands of a mixture of experts are those of the commands: against finite
// differences, or, where a command is linear in an operand, by inner products.
// test/simt/kernels/CommandsTest.cpp compares each command with its formula.
#include "test/runtime/device/conformance/Conformance.h"

#include <cmath>
#include <numeric>

using namespace lmc;
using namespace lmc::test;

static std::vector<float> wave(size_t count, double step) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = float(std::sin(step * double(i + 1)));
  return values;
}

// Six tokens choose two of four experts. Expert 2 is never among the best.
TEST_P(OwnKernels, DifferentiatesARouter) {
  constexpr size_t kRows = 6, kExperts = 4, kChosen = 2;
  for (int variant = 0; variant < 8; ++variant) {
    const bool normalize = variant & 1, sigmoid = variant & 2, hasBias = variant & 4;
    const double scale = hasBias ? 2.5 : 1;
    SCOPED_TRACE(variant);
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    plan::RouteT route;
    plan::RouteGradT grad;
    route.logits = grad.logits = b.slice(DType::F32, {kRows, kExperts});
    route.experts = grad.experts = b.slice(DType::I32, {kRows, kChosen});
    route.weights = b.slice(DType::F32, {kRows, kChosen});
    route.counts = b.slice(DType::F32, {kExperts});
    route.mass = b.slice(DType::F32, {kExperts});
    grad.dweights = b.slice(DType::F32, {kRows, kChosen});
    grad.dlogits = b.slice(DType::F32, {kRows, kExperts});
    auto describe = [&](auto &op) {
      op.tokens = kRows;
      op.count = kExperts;
      op.chosen = kChosen;
      op.normalize = normalize;
      op.sigmoid = sigmoid;
      op.scale = scale;
    };
    describe(route);
    describe(grad);
    if (hasBias)
      route.bias = int(b.slice(DType::F32, {kExperts}));
    if (!sigmoid)
      grad.dmass = int(b.slice(DType::F32, {kExperts}));
    b.command(route);
    b.command(grad);
    ASSERT_NO_FATAL_FAILURE(record(2));
    std::vector<float> logits = wave(kRows * kExperts, 1.7);
    for (size_t t = 0; t < kRows; ++t)
      logits[t * kExperts + 2] = -3;
    const std::vector<float> dweights = wave(kRows * kChosen, 0.9), dmass{0.5f, -1, 2, 0.25f};
    write(route.logits, logits);
    write(grad.dweights, dweights);
    if (hasBias)
      write(uint32_t(route.bias), std::vector<float>{-0.4f, 0.3f, 0, 0.1f});
    if (!sigmoid)
      write(uint32_t(grad.dmass), dmass);
    ASSERT_NO_FATAL_FAILURE(run());
    const std::vector<int32_t> experts = read<int32_t>(route.experts);
    // The sum of dweights * weights and dmass * mass, with the experts that are chosen at `logits`.
    auto objective = [&](const std::vector<double> &x) {
      double all = 0;
      for (size_t t = 0; t < kRows; ++t) {
        double p[kExperts], total = 0, chosen = 0;
        for (size_t e = 0; e < kExperts; ++e)
          total += p[e] = std::exp(x[t * kExperts + e]);
        for (double &each : p)
          each /= sigmoid ? 1 + each : total;
        for (size_t c = t * kChosen; c < (t + 1) * kChosen; ++c)
          chosen += p[experts[c]];
        for (size_t c = t * kChosen; c < (t + 1) * kChosen; ++c)
          all += scale * dweights[c] * p[experts[c]] / (normalize ? chosen : 1);
        for (size_t e = 0; e < kExperts && !sigmoid; ++e)
          all += dmass[e] * p[e];
      }
      return all;
    };
    const std::vector<float> dlogits = read<float>(grad.dlogits);
    for (size_t i = 0; i < dlogits.size(); ++i) {
      std::vector<double> up(logits.begin(), logits.end()), down = up;
      up[i] += 1e-4;
      down[i] -= 1e-4;
      EXPECT_NEAR(dlogits[i], (objective(up) - objective(down)) / 2e-4, 1e-5) << i;
    }
    executable = nullptr;
    device = nullptr;
  }
}

// Six tokens of five columns, two choices each of four experts with three columns.
TEST_P(OwnKernels, DifferentiatesWhatIsLinear) {
  constexpr uint64_t kRows = 6, kChosen = 2, kChoices = 12, kExperts = 4, kInner = 5, kColumns = 3;
  std::vector<uint32_t> inputs; // floats that are drawn
  auto matrix = [&](uint64_t rows, uint64_t columns, bool isInput = false) {
    const uint32_t made = b.slice(DType::F32, {rows, columns});
    if (isInput)
      inputs.push_back(made);
    return made;
  };
  auto moved = [](auto op, uint64_t columns) {
    op.tokens = kRows;
    op.chosen = kChosen;
    op.columns = columns;
    return op;
  };
  auto multiplied = [](auto op, uint64_t inner, uint64_t columns) {
    op.rows = kChoices;
    op.experts = kExperts;
    op.inner = inner;
    op.columns = columns;
    return op;
  };
  const uint32_t rows = b.slice(DType::I32, {kChoices}), places = b.slice(DType::I32, {kChoices}),
                 offsets = b.slice(DType::I32, {kExperts + 1});
  auto take = moved(plan::TakeRowsT(), kInner);
  take.x = matrix(kRows, kInner, true);
  take.rows = rows;
  take.y = matrix(kChoices, kInner);
  auto takeGrad = moved(plan::TakeRowsGradT(), kInner);
  takeGrad.dy = matrix(kChoices, kInner, true);
  takeGrad.places = places;
  takeGrad.dx = matrix(kRows, kInner);
  auto combine = moved(plan::CombineRowsT(), kColumns);
  combine.y = matrix(kChoices, kColumns, true);
  combine.weights = matrix(kRows, kChosen, true);
  combine.places = places;
  combine.out = matrix(kRows, kColumns);
  auto combineGrad = moved(plan::CombineRowsGradT(), kColumns);
  combineGrad.dout = matrix(kRows, kColumns, true);
  combineGrad.y = combine.y;
  combineGrad.weights = combine.weights;
  combineGrad.rows = rows;
  combineGrad.places = int(places);
  combineGrad.dy = matrix(kChoices, kColumns);
  combineGrad.dweights = matrix(kRows, kChosen);
  auto linear = multiplied(plan::ExpertLinearT(), kInner, kColumns);
  linear.x = matrix(kChoices, kInner, true);
  linear.weight = matrix(kExperts * kColumns, kInner, true);
  linear.offsets = offsets;
  linear.y = matrix(kChoices, kColumns);
  auto back = multiplied(plan::ExpertLinearT(), kColumns, kInner); // the gradient of linear.x
  back.transposed = true;
  back.x = matrix(kChoices, kColumns, true);
  back.weight = linear.weight;
  back.offsets = offsets;
  back.y = matrix(kChoices, kInner);
  auto linearGrad = multiplied(plan::ExpertLinearGradT(), kInner, kColumns);
  linearGrad.dy = back.x;
  linearGrad.x = linear.x;
  linearGrad.offsets = offsets;
  linearGrad.d = matrix(kExperts * kColumns, kInner);
  b.command(take);
  b.command(takeGrad);
  b.command(combine);
  b.command(combineGrad);
  b.command(linear);
  b.command(back);
  b.command(linearGrad);
  ASSERT_NO_FATAL_FAILURE(record(2));
  write(rows, std::vector<int32_t>{3, 1, 2, 7, 5, 6, 9, 11, 0, 4, 8, 10});
  write(places, std::vector<int32_t>{8, 1, 2, 0, 9, 4, 5, 3, 10, 6, 11, 7});
  write(offsets, std::vector<int32_t>{0, 3, 8, 8, 12});
  for (uint32_t input : inputs)
    write(input, wave((*plan)->slices()->Get(input)->bytes() / 4, 0.7 + 0.1 * input));
  ASSERT_NO_FATAL_FAILURE(run());
  auto inner = [&](uint32_t one, uint32_t other) {
    const std::vector<float> x = read<float>(one), y = read<float>(other);
    return std::inner_product(x.begin(), x.end(), y.begin(), 0.0);
  };
  EXPECT_NEAR(inner(take.y, takeGrad.dy), inner(take.x, takeGrad.dx), 1e-5);
  EXPECT_NEAR(inner(combine.out, combineGrad.dout), inner(combine.y, combineGrad.dy), 1e-5);
  EXPECT_NEAR(inner(combine.out, combineGrad.dout), inner(combine.weights, combineGrad.dweights),
              1e-5);
  EXPECT_NEAR(inner(linear.y, back.x), inner(linear.x, back.y), 1e-5);
  EXPECT_NEAR(inner(linear.y, back.x), inner(linear.weight, linearGrad.d), 1e-5);
}

TEST_P(OwnKernels, DifferentiatesSwiglu) {
  constexpr size_t kRows = 4, kColumns = 5;
  plan::ExpertSwigluGradT grad;
  grad.dy = b.slice(DType::F32, {kRows, kColumns});
  grad.x = b.slice(DType::F32, {kRows, 2 * kColumns});
  grad.offsets = b.slice(DType::I32, {3});
  grad.dx = b.slice(DType::F32, {kRows, 2 * kColumns});
  grad.rows = kRows;
  grad.experts = 2;
  grad.columns = kColumns;
  b.command(grad);
  ASSERT_NO_FATAL_FAILURE(record(2));
  const std::vector<float> x = wave(kRows * 2 * kColumns, 1.3), dy = wave(kRows * kColumns, 0.8);
  write(grad.x, x);
  write(grad.dy, dy);
  write(grad.offsets, std::vector<int32_t>{0, 1, int32_t(kRows)});
  ASSERT_NO_FATAL_FAILURE(run());
  auto swiglu = [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; };
  const std::vector<float> dx = read<float>(grad.dx);
  for (size_t at = 0; at < dy.size(); ++at) {
    const size_t gateAt = at / kColumns * 2 * kColumns + at % kColumns, upAt = gateAt + kColumns;
    const double gate = x[gateAt], up = x[upAt], step = 1e-4;
    EXPECT_NEAR(dx[gateAt],
                dy[at] * (swiglu(gate + step, up) - swiglu(gate - step, up)) / (2 * step), 1e-5);
    EXPECT_NEAR(dx[upAt], dy[at] * swiglu(gate, 1), 1e-5);
  }
}
