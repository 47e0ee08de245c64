// The commands of a mixture of experts on the CPU. Results do not depend on the number of threads.
#include "runtime/device/cpu/commands/Rows.h"
#include "runtime/device/cpu/kernels/Kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>

namespace lmc::cpu {
namespace {

// Sets p to the sigmoids of a row of logits, or to its softmax.
template <typename T, typename Real>
void probabilities(bool isSigmoid, const T *logits, int64_t count, Real *p) {
  if (isSigmoid) {
    for (int64_t e = 0; e < count; ++e)
      p[e] = 1 / (1 + std::exp(-Real(widened(logits[e]))));
    return;
  }
  Real top = -std::numeric_limits<Real>::infinity(), sum = 0;
  for (int64_t e = 0; e < count; ++e)
    top = std::max(top, Real(widened(logits[e])));
  for (int64_t e = 0; e < count; ++e)
    sum += p[e] = std::exp(Real(widened(logits[e])) - top);
  for (int64_t e = 0; e < count; ++e)
    p[e] /= sum;
}

// This number is added to a sum of sigmoids before a division by the sum, as in DeepSeek-V3's code.
constexpr double kLeastSum = 1e-20;

// The command Route (plan.fbs).
template <typename T> struct Router {
  using Real = RealOf<T>;
  Resolver &at;
  const plan::Route &op;
  int64_t tokens = int64_t(op.tokens()), count = int64_t(op.count()), chosen = int64_t(op.chosen());
  bool normalize = op.normalize(), isSigmoid = op.sigmoid();
  Real scale = Real(op.scale());
  const T *logits = at.address<const T>(op.logits());
  const Real *bias = at.address<const Real>(op.bias()); // may be null
  Real *weights = at.address<Real>(op.weights());
  int32_t *experts = at.address<int32_t>(op.experts());
  Real *counts = at.address<Real>(op.counts()), *mass = at.address<Real>(op.mass());
  // Each task has `count` elements of `rows`, the probabilities p of the current token, and `count`
  // elements of `sums`, the sums of normalised p over all tokens of the task.
  std::vector<Real> rows = std::vector<Real>(size_t(tasksOf(tokens) * count)), sums = rows;

  void operator()() {
    const int64_t tasks = tasksOf(tokens);
    inParallel(at.threads, tasks, [&](int64_t task) {
      Real *p = rows.data() + task * count, *sum = sums.data() + task * count;
      std::fill(sum, sum + count, Real(0));
      const int64_t end = std::min(tokens, (task + 1) * kRowsPerTask);
      for (int64_t t = task * kRowsPerTask; t < end; ++t) {
        probabilities(isSigmoid, logits + t * count, count, p);
        const Real whole = isSigmoid ? std::accumulate(p, p + count, Real(kLeastSum)) : Real(1);
        for (int64_t e = 0; e < count; ++e)
          sum[e] += p[e] / whole;
        choose(p, weights + t * chosen, experts + t * chosen);
      }
    });
    std::fill(counts, counts + count, Real(0));
    std::fill(mass, mass + count, Real(0));
    for (int64_t c = 0; c < tokens * chosen; ++c)
      counts[experts[c]] += 1;
    for (int64_t task = 0; task < tasks; ++task)
      for (int64_t e = 0; e < count; ++e)
        mass[e] += sums[size_t(task * count + e)];
  }

  // Chooses the experts with the largest p + bias; of experts with equal p + bias, the first.
  void choose(Real *p, Real *weight, int32_t *expert) const {
    auto score = [&](int64_t e) { return bias ? p[e] + bias[e] : p[e]; };
    Real sum = isSigmoid ? Real(kLeastSum) : Real(0);
    for (int64_t j = 0; j < chosen; ++j) {
      // Comparisons with NaN are false. So a row of NaN gets the first experts, with NaN weights.
      int64_t best = -1;
      for (int64_t e = 0; e < count; ++e)
        if (std::find(expert, expert + j, int32_t(e)) == expert + j &&
            (best < 0 || score(e) > score(best)))
          best = e;
      expert[j] = int32_t(best);
      weight[j] = p[best];
      sum += p[best];
    }
    for (int64_t j = 0; j < chosen; ++j)
      weight[j] = scale * (normalize ? weight[j] / sum : weight[j]);
  }
};

template <typename T> struct RouterGrad {
  using Real = RealOf<T>;
  Resolver &at;
  const plan::RouteGrad &op;
  int64_t tokens = int64_t(op.tokens()), count = int64_t(op.count()), chosen = int64_t(op.chosen());
  bool normalize = op.normalize(), isSigmoid = op.sigmoid();
  Real scale = Real(op.scale());
  const T *logits = at.address<const T>(op.logits());
  const int32_t *experts = at.address<const int32_t>(op.experts());
  const Real *dweights = at.address<const Real>(op.dweights());
  const Real *dmass = at.address<const Real>(op.dmass()); // may be null
  T *dlogits = at.address<T>(op.dlogits());
  // `rows` has two rows per task: the probabilities p of its current token, and their gradient.
  std::vector<Real> rows = std::vector<Real>(size_t(tasksOf(tokens) * 2 * count));

  void operator()() {
    inParallel(at.threads, tasksOf(tokens), [&](int64_t task) {
      Real *p = rows.data() + task * 2 * count, *dp = p + count;
      const int64_t end = std::min(tokens, (task + 1) * kRowsPerTask);
      for (int64_t t = task * kRowsPerTask; t < end; ++t)
        row(t, p, dp);
    });
  }

  void row(int64_t t, Real *p, Real *dp) const {
    const int32_t *expert = experts + t * chosen;
    const Real *dw = dweights + t * chosen;
    probabilities(isSigmoid, logits + t * count, count, p);
    for (int64_t e = 0; e < count; ++e)
      dp[e] = dmass ? dmass[e] : Real(0);
    Real sum = isSigmoid ? Real(kLeastSum) : Real(0), along = 0; // sums of p, and of dw times w
    for (int64_t j = 0; j < chosen; ++j)
      sum += p[expert[j]];
    for (int64_t j = 0; j < chosen; ++j)
      along += scale * dw[j] * p[expert[j]] / sum;
    for (int64_t j = 0; j < chosen; ++j)
      dp[expert[j]] += normalize ? (scale * dw[j] - along) / sum : scale * dw[j];
    if (isSigmoid) {
      for (int64_t e = 0; e < count; ++e)
        narrow(dlogits[t * count + e], dp[e] * p[e] * (1 - p[e]));
      return;
    }
    Real inner = 0;
    for (int64_t e = 0; e < count; ++e)
      inner += p[e] * dp[e];
    for (int64_t e = 0; e < count; ++e)
      narrow(dlogits[t * count + e], p[e] * (dp[e] - inner));
  }
};

// The parameters of all commands that move rows of tokens to experts or back.
struct Rows {
  int64_t tokens, chosen, columns;
  int64_t held;         // number of rows that the experts have together
  const int32_t *index; // maps each choice to a row, or each row to a choice; -1: no row or choice
  int threads;
};

template <typename Op> Rows rowsOf(Resolver &at, const Op &op, uint32_t index) {
  return {int64_t(op.tokens()),
          int64_t(op.chosen()),
          int64_t(op.columns()),
          int64_t(op.held() ? op.held() : op.tokens() * op.chosen()),
          at.address<const int32_t>(index),
          at.threads};
}

// Computes to[t, :] = sum over the choices c of token t of weights[c] from[rows.index[c], :]. If
// `weights` is null, each weight is 1.
template <typename T>
void combine(const Rows &rows, const T *from, const RealOf<T> *weights, T *to) {
  using Real = RealOf<T>;
  constexpr int64_t kColumns = 256;
  forRows(rows.threads, rows.tokens, [&](int64_t t) {
    for (int64_t first = 0; first < rows.columns; first += kColumns) {
      const int64_t width = std::min(kColumns, rows.columns - first);
      Real sum[kColumns] = {};
      for (int64_t j = 0; j < rows.chosen; ++j) {
        const int64_t choice = t * rows.chosen + j;
        if (rows.index[choice] < 0)
          continue;
        const T *row = from + int64_t(rows.index[choice]) * rows.columns + first;
        const Real weight = weights ? weights[choice] : Real(1);
        for (int64_t i = 0; i < width; ++i)
          sum[i] += weight * widened(row[i]);
      }
      for (int64_t i = 0; i < width; ++i)
        narrow(to[t * rows.columns + first + i], sum[i]);
    }
  });
}

} // namespace

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Route &op) {
  return withTypeOf(at.storage(op.logits()), [&](auto type) {
    return BoundCommand(Router<decltype(type)>{at, op});
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::RouteGrad &op) {
  return withTypeOf(at.storage(op.logits()), [&](auto type) {
    return BoundCommand(RouterGrad<decltype(type)>{at, op});
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::SortRows &op) {
  const auto choices = int64_t(op.choices()), count = int64_t(op.count());
  const auto groups = int64_t(op.groups()), first = int64_t(op.first());
  const int64_t held = op.held() ? int64_t(op.held()) : choices;
  const auto *experts = at.address<const int32_t>(op.experts());
  auto *offsets = at.address<int32_t>(op.offsets());
  auto *rows = at.address<int32_t>(op.rows()), *places = at.address<int32_t>(op.places());
  // The slice op.rank() holds this rank's number as f32 or f64. Without the slice, the number is 0.
  std::function<int64_t()> rank = [] { return int64_t(0); };
  if (op.rank() >= 0 && at.storage(uint32_t(op.rank())) == Storage::F64)
    rank = [from = at.address<const double>(op.rank())] { return int64_t(*from); };
  else if (op.rank() >= 0)
    rank = [from = at.address<const float>(op.rank())] { return int64_t(*from); };
  return BoundCommand([=, next = std::vector<int64_t>(size_t(count) + 1)]() mutable {
    const int64_t least = rank() % groups * count;
    auto isOwn = [&](int64_t c) { return experts[c] >= least && experts[c] < least + count; };
    std::fill(next.begin(), next.end(), 0);
    for (int64_t c = 0; c < choices; ++c)
      if (isOwn(c))
        ++next[size_t(experts[c] - least + 1)];
    std::partial_sum(next.begin(), next.end(), next.begin());
    for (int64_t e = 0; e <= count; ++e)
      offsets[e] = int32_t(std::clamp(next[size_t(e)] - first, int64_t(0), held));
    std::fill(rows + offsets[count], rows + held, -1);
    for (int64_t c = 0; c < choices; ++c) {
      places[c] = -1;
      if (!isOwn(c))
        continue;
      const int64_t row = next[size_t(experts[c] - least)]++ - first;
      if (row < 0 || row >= held)
        continue;
      rows[row] = int32_t(c);
      places[c] = int32_t(row);
    }
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::TakeRows &op) {
  const Rows rows = rowsOf(at, op, op.rows());
  const int64_t bytes = rows.columns * elementBytes(at.storage(op.x()));
  return BoundCommand([rows, bytes, x = at.address<const char>(op.x()), y = at.address(op.y())] {
    forRows(rows.threads, rows.held, [&](int64_t row) {
      if (rows.index[row] >= 0)
        std::memcpy(y + row * bytes, x + rows.index[row] / rows.chosen * bytes, size_t(bytes));
    });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::TakeRowsGrad &op) {
  return withTypeOf(at.storage(op.dy()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([rows = rowsOf(at, op, op.places()), dy = at.address<const T>(op.dy()),
                         dx = at.address<T>(op.dx())] { combine<T>(rows, dy, nullptr, dx); });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::CombineRows &op) {
  return withTypeOf(at.storage(op.y()), [&](auto type) {
    using T = decltype(type);
    return BoundCommand([rows = rowsOf(at, op, op.places()), y = at.address<const T>(op.y()),
                         weights = at.address<const RealOf<T>>(op.weights()),
                         out = at.address<T>(op.out())] { combine<T>(rows, y, weights, out); });
  });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::CombineRowsGrad &op) {
  return withTypeOf(at.storage(op.y()), [&](auto type) {
    using T = decltype(type);
    using Real = RealOf<T>;
    return BoundCommand([rows = rowsOf(at, op, op.rows()), dout = at.address<const T>(op.dout()),
                         y = at.address<const T>(op.y()),
                         weights = at.address<const Real>(op.weights()),
                         places = at.address<const int32_t>(op.places()),
                         dy = at.address<T>(op.dy()), dweights = at.address<Real>(op.dweights())] {
      forRows(rows.threads, rows.tokens * rows.chosen, [&](int64_t choice) {
        if (places[choice] < 0)
          dweights[choice] = 0;
      });
      forRows(rows.threads, rows.held, [&](int64_t row) {
        const int64_t choice = rows.index[row];
        if (choice < 0)
          return;
        const T *from = dout + choice / rows.chosen * rows.columns, *value = y + row * rows.columns;
        T *to = dy + row * rows.columns;
        const Real weight = weights[choice];
        Real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < rows.columns; ++i) {
          const Real d = widened(from[i]);
          sum += d * widened(value[i]);
          narrow(to[i], weight * d);
        }
        dweights[choice] = sum;
      });
    });
  });
}

} // namespace lmc::cpu
