// The commands of a mixture of experts.
#include "test/runtime/device/conformance/Conformance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace lmc;
using namespace lmc::test;

// Six tokens choose two of four experts. Expert 2 is never among the best: it gets no choice.
TEST_P(OwnKernels, Routes) {
  constexpr int kRows = 6, kExperts = 4, kChosen = 2;
  struct Router {
    bool normalize, sigmoid;
    std::vector<float> bias;
    double scale;
  };
  const std::vector<float> kBias{-0.4f, 0.3f, 0, 0.1f};
  for (const Router &router : {Router{false, false, {}, 1}, Router{true, false, {}, 1},
                               Router{false, true, {}, 1}, Router{true, false, kBias, 0.5},
                               Router{true, true, kBias, 2.5}, Router{false, true, kBias, 2}}) {
    SCOPED_TRACE(testing::Message() << "normalize " << router.normalize << ", sigmoid "
                                    << router.sigmoid << ", bias " << !router.bias.empty());
    b = PlanBuilder();
    b.plan.target = GetParam().target;
    plan::RouteT route;
    route.logits = b.slice(DType::F32, {kRows, kExperts});
    route.weights = b.slice(DType::F32, {kRows, kChosen});
    route.experts = b.slice(DType::I32, {kRows, kChosen});
    route.counts = b.slice(DType::F32, {kExperts});
    route.mass = b.slice(DType::F32, {kExperts});
    plan::RouteGradT grad;
    grad.logits = route.logits;
    grad.experts = route.experts;
    grad.dweights = b.slice(DType::F32, {kRows, kChosen});
    grad.dlogits = b.slice(DType::F32, {kRows, kExperts});
    auto describe = [&](auto &op) {
      op.tokens = kRows;
      op.count = kExperts;
      op.chosen = kChosen;
      op.normalize = router.normalize;
      op.sigmoid = router.sigmoid;
      op.scale = router.scale;
    };
    describe(route);
    describe(grad);
    if (!router.bias.empty())
      route.bias = int(b.slice(DType::F32, {kExperts}));
    if (!router.sigmoid)
      grad.dmass = int(b.slice(DType::F32, {kExperts}));
    b.command(route);
    b.command(grad);
    ASSERT_NO_FATAL_FAILURE(record(2));

    std::vector<float> logits, dweights, dmass{0.5f, -1, 2, 0.25f};
    for (int t = 0; t < kRows; ++t)
      for (int e = 0; e < kExperts; ++e)
        logits.push_back(e == 2 ? -3 : float(std::sin(1.7 * (t * kExperts + e))));
    for (int c = 0; c < kRows * kChosen; ++c)
      dweights.push_back(float(std::cos(0.9 * c)));
    write(route.logits, logits);
    write(grad.dweights, dweights);
    if (!router.bias.empty())
      write(uint32_t(route.bias), router.bias);
    if (!router.sigmoid)
      write(uint32_t(grad.dmass), dmass);
    else
      dmass.assign(kExperts, 0);
    ASSERT_NO_FATAL_FAILURE(run());

    // What the gradient is of: the sum of dweights * weights and dmass * mass, with the experts
    // that are chosen at `logits`.
    std::vector<int32_t> experts;
    auto probabilitiesOf = [&](const std::vector<double> &x, int t) {
      std::vector<double> p(kExperts);
      double total = 0;
      for (int e = 0; e < kExperts; ++e) {
        const double power = std::exp(x[size_t(t * kExperts + e)]);
        total += p[size_t(e)] = router.sigmoid ? power / (1 + power) : power;
      }
      for (double &each : p)
        each /= router.sigmoid ? 1 : total;
      return p;
    };
    auto weightsOf = [&](const std::vector<double> &p, int t) {
      const double x = p[size_t(experts[size_t(2 * t)])], y = p[size_t(experts[size_t(2 * t + 1)])];
      const double factor = router.scale / (router.normalize ? x + y : 1);
      return std::pair(x * factor, y * factor);
    };
    const std::vector<double> at(logits.begin(), logits.end());
    std::vector<float> counts(kExperts), mass(kExperts);
    const std::vector<float> weights = read<float>(route.weights);
    int biased = 0; // tokens whose experts are not those without the bias
    for (int t = 0; t < kRows; ++t) {
      const std::vector<double> p = probabilitiesOf(at, t);
      std::vector<double> score = p;
      for (size_t e = 0; e < router.bias.size(); ++e)
        score[e] += router.bias[e];
      auto orderBy = [](const std::vector<double> &values) {
        std::vector<int32_t> order{0, 1, 2, 3};
        std::stable_sort(order.begin(), order.end(), [&](int32_t x, int32_t y) {
          return values[size_t(x)] > values[size_t(y)];
        });
        order.resize(kChosen);
        return order;
      };
      biased += orderBy(score) != orderBy(p);
      for (int32_t each : orderBy(score)) {
        experts.push_back(each);
        counts[size_t(each)] += 1;
      }
      const double whole = std::accumulate(p.begin(), p.end(), 0.0);
      for (size_t e = 0; e < kExperts; ++e)
        mass[e] += float(p[e] / whole);
      const auto [first, second] = weightsOf(p, t);
      EXPECT_NEAR(weights[size_t(2 * t)], first, 1e-5);
      EXPECT_NEAR(weights[size_t(2 * t + 1)], second, 1e-5);
    }
    EXPECT_EQ(biased > 0, !router.bias.empty()) << "a bias changes some choices";
    EXPECT_EQ(read<int32_t>(route.experts), experts);
    EXPECT_EQ(read<float>(route.counts), counts);
    EXPECT_EQ(counts[2], 0) << "the case has an expert without choices";
    const std::vector<float> foundMass = read<float>(route.mass);
    for (size_t e = 0; e < kExperts; ++e)
      EXPECT_NEAR(foundMass[e], mass[e], 1e-5);
    auto objective = [&](const std::vector<double> &x) {
      double sum = 0;
      for (int t = 0; t < kRows; ++t) {
        const std::vector<double> p = probabilitiesOf(x, t);
        const auto [first, second] = weightsOf(p, t);
        sum += dweights[size_t(2 * t)] * first + dweights[size_t(2 * t + 1)] * second;
        for (size_t e = 0; e < kExperts; ++e)
          sum += dmass[e] * p[e];
      }
      return sum;
    };
    const std::vector<float> dlogits = read<float>(grad.dlogits);
    for (size_t i = 0; i < dlogits.size(); ++i) {
      std::vector<double> up = at, down = at;
      up[i] += 1e-4;
      down[i] -= 1e-4;
      EXPECT_NEAR(dlogits[i], (objective(up) - objective(down)) / 2e-4, 1e-5) << i;
    }
    executable = nullptr;
    device = nullptr;
  }
}

// Six tokens of five columns, two choices each of four experts with three columns. All values are
// small whole numbers, so that sums are exact.
TEST_P(OwnKernels, MultipliesRowsByTheirExperts) {
  constexpr int kRows = 6, kChosen = 2, kChoices = kRows * kChosen, kExperts = 4;
  constexpr int kInner = 5, kColumns = 3;
  const std::vector<int32_t> drawn[] = {{3, 0, 0, 1, 3, 1, 1, 0, 3, 1, 0, 3},  // none on expert 2
                                        {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2}}; // all on expert 2
  for (const std::vector<int32_t> &experts : drawn)
    for (bool accumulate : {false, true}) {
      b = PlanBuilder();
      b.plan.target = GetParam().target;
      auto matrix = [&](uint64_t rows, uint64_t columns) {
        return b.slice(DType::F32, {rows, columns});
      };
      plan::SortRowsT sort;
      sort.experts = b.slice(DType::I32, {kChoices});
      sort.offsets = b.slice(DType::I32, {kExperts + 1});
      sort.rows = b.slice(DType::I32, {kChoices});
      sort.places = b.slice(DType::I32, {kChoices});
      sort.choices = kChoices;
      sort.count = kExperts;
      b.command(sort);
      auto sized = [](auto op, uint64_t columns) {
        op.tokens = kRows;
        op.chosen = kChosen;
        op.columns = columns;
        return op;
      };
      auto take = sized(plan::TakeRowsT(), kInner);
      take.x = matrix(kRows, kInner);
      take.rows = sort.rows;
      take.y = matrix(kChoices, kInner);
      b.command(take);
      auto expert = [](auto op) {
        op.rows = kChoices;
        op.experts = kExperts;
        op.inner = kInner;
        op.columns = kColumns;
        return op;
      };
      auto linear = expert(plan::ExpertLinearT());
      linear.x = take.y;
      linear.weight = matrix(kExperts * kColumns, kInner);
      linear.offsets = sort.offsets;
      linear.y = matrix(kChoices, kColumns);
      b.command(linear);
      auto combine = sized(plan::CombineRowsT(), kColumns);
      combine.y = linear.y;
      combine.weights = matrix(kRows, kChosen);
      combine.places = sort.places;
      combine.out = matrix(kRows, kColumns);
      b.command(combine);
      auto combineGrad = sized(plan::CombineRowsGradT(), kColumns);
      combineGrad.dout = matrix(kRows, kColumns);
      combineGrad.y = linear.y;
      combineGrad.weights = combine.weights;
      combineGrad.rows = sort.rows;
      combineGrad.places = int(sort.places);
      combineGrad.dy = matrix(kChoices, kColumns);
      combineGrad.dweights = matrix(kRows, kChosen);
      b.command(combineGrad);
      // The gradient of the rows: dy w_e, which has 5 columns and sums over 3.
      auto back = expert(plan::ExpertLinearT());
      std::swap(back.inner, back.columns);
      back.transposed = true;
      back.x = combineGrad.dy;
      back.weight = linear.weight;
      back.offsets = sort.offsets;
      back.y = matrix(kChoices, kInner);
      b.command(back);
      auto grad = expert(plan::ExpertLinearGradT());
      grad.dy = combineGrad.dy;
      grad.x = take.y;
      grad.offsets = sort.offsets;
      grad.d = matrix(kExperts * kColumns, kInner);
      grad.accumulate = accumulate;
      b.command(grad);
      auto takeGrad = sized(plan::TakeRowsGradT(), kInner);
      takeGrad.dy = back.y;
      takeGrad.places = sort.places;
      takeGrad.dx = matrix(kRows, kInner);
      b.command(takeGrad);
      ASSERT_NO_FATAL_FAILURE(record(2));

      auto values = [](int count, int factor) {
        std::vector<float> numbers;
        for (int i = 0; i < count; ++i)
          numbers.push_back(float(i * factor % 7 - 3));
        return numbers;
      };
      const std::vector<float> x = values(kRows * kInner, 2), weights = values(kChoices, 5),
                               weight = values(kExperts * kColumns * kInner, 3),
                               dout = values(kRows * kColumns, 4),
                               before = values(kExperts * kColumns * kInner, 6);
      write(sort.experts, experts);
      write(take.x, x);
      write(linear.weight, weight);
      write(combine.weights, weights);
      write(combineGrad.dout, dout);
      write(grad.d, before);
      ASSERT_NO_FATAL_FAILURE(run());

      // The same choice by choice, without any order of rows.
      std::vector<float> out(kRows * kColumns), dx(kRows * kInner), dweights(kChoices),
          dweight(before.size());
      if (accumulate)
        dweight = before;
      for (int c = 0; c < kChoices; ++c)
        for (int i = 0; i < kColumns; ++i) {
          const size_t t = size_t(c / kChosen), w = size_t(experts[size_t(c)] * kColumns + i);
          const float d = dout[t * kColumns + size_t(i)];
          float sum = 0;
          for (size_t j = 0; j < kInner; ++j) {
            sum += x[t * kInner + j] * weight[w * kInner + j];
            dx[t * kInner + j] += weights[size_t(c)] * d * weight[w * kInner + j];
            dweight[w * kInner + j] += weights[size_t(c)] * d * x[t * kInner + j];
          }
          out[t * kColumns + size_t(i)] += weights[size_t(c)] * sum;
          dweights[size_t(c)] += d * sum;
        }
      std::vector<int32_t> order(kChoices), offsets{0};
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int32_t one, int32_t other) {
        return experts[size_t(one)] < experts[size_t(other)];
      });
      for (int e = 0; e < kExperts; ++e)
        offsets.push_back(offsets.back() + int32_t(std::count(experts.begin(), experts.end(), e)));
      EXPECT_EQ(read<int32_t>(sort.rows), order);
      EXPECT_EQ(read<int32_t>(sort.offsets), offsets);
      EXPECT_EQ(read<float>(combine.out), out);
      EXPECT_EQ(read<float>(combineGrad.dweights), dweights);
      EXPECT_EQ(read<float>(takeGrad.dx), dx);
      EXPECT_EQ(read<float>(grad.d), dweight);
      executable = nullptr;
      device = nullptr;
    }
}

// Four of six rows are of an expert. The others hold NaN, and what is computed of them stays as it
// is.
TEST_P(OwnKernels, ComputesSwigluOfTheRowsOfExperts) {
  constexpr size_t kRows = 6, kOwn = 4, kColumns = 5;
  plan::ExpertSwigluT forward;
  forward.x = b.slice(DType::F32, {kRows, 2 * kColumns});
  forward.offsets = b.slice(DType::I32, {3});
  forward.y = b.slice(DType::F32, {kRows, kColumns});
  forward.rows = kRows;
  forward.experts = 2;
  forward.columns = kColumns;
  b.command(forward);
  plan::ExpertSwigluGradT grad;
  grad.dy = b.slice(DType::F32, {kRows, kColumns});
  grad.x = forward.x;
  grad.offsets = forward.offsets;
  grad.dx = b.slice(DType::F32, {kRows, 2 * kColumns});
  grad.rows = kRows;
  grad.experts = 2;
  grad.columns = kColumns;
  b.command(grad);
  ASSERT_NO_FATAL_FAILURE(record(2));

  std::vector<float> x(kRows * 2 * kColumns, NAN), dy(kRows * kColumns, NAN);
  for (size_t i = 0; i < kOwn * 2 * kColumns; ++i)
    x[i] = float(i * 5 % 13) / 2 - 3;
  for (size_t i = 0; i < kOwn * kColumns; ++i)
    dy[i] = float(i * 4 % 7) - 3;
  write(forward.x, x);
  write(forward.offsets, std::vector<int32_t>{0, 1, int32_t(kOwn)});
  write(forward.y, std::vector<float>(dy.size(), 7));
  write(grad.dy, dy);
  write(grad.dx, std::vector<float>(x.size(), 8));
  ASSERT_NO_FATAL_FAILURE(run());

  auto swiglu = [](double gate, double up) { return gate / (1 + std::exp(-gate)) * up; };
  const std::vector<float> y = read<float>(forward.y), dx = read<float>(grad.dx);
  for (size_t r = 0; r < kRows; ++r)
    for (size_t i = 0; i < kColumns; ++i) {
      const size_t gateAt = r * 2 * kColumns + i, upAt = gateAt + kColumns, at = r * kColumns + i;
      if (r >= kOwn) {
        EXPECT_EQ(y[at], 7);
        EXPECT_EQ(dx[gateAt], 8);
        EXPECT_EQ(dx[upAt], 8);
        continue;
      }
      const double gate = x[gateAt], up = x[upAt], step = 1e-4;
      EXPECT_NEAR(y[at], swiglu(gate, up), 1e-5);
      EXPECT_NEAR(dx[gateAt],
                  dy[at] * (swiglu(gate + step, up) - swiglu(gate - step, up)) / (2 * step), 1e-5);
      EXPECT_NEAR(dx[upAt], dy[at] * swiglu(gate, 1), 1e-5);
    }
}
