// The programs that are extracted for the commands of a mixture of experts, compiled for the host
// with plain loops in the place of the kernels. Each must accept the loops, and find each mistake
// that they can be told to make.
#include "test/compiler/extract/HostProgram.h"

#include <gmock/gmock.h>

#include <functional>

using namespace lmc;
using namespace lmc::test;
using plan::DType;
using testing::HasSubstr;

namespace {

// What all loops begin with. T is the type of matrices, Real that of sums.
const char *kTypes = R"(
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Bf16 {
  uint16_t bits;
  operator float() const {
    const uint32_t wide = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &wide, 4);
    return value;
  }
  Bf16 &operator=(float value) {
    uint32_t wide;
    std::memcpy(&wide, &value, 4);
    bits = uint16_t((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
    return *this;
  }
};

template <typename T> T *at(void **arguments, int i) { return *static_cast<T **>(arguments[i]); }

static const int mistake = std::atoi(std::getenv("MISTAKE"));
)";

// The probabilities of token t, as both kernels of a router need them.
const char *kProbabilities = R"(
static std::vector<Real> probabilities(const T *logits, int t) {
  std::vector<Real> p(kExperts);
  Real sum = 0;
  for (int e = 0; e < kExperts; ++e) {
    const Real power = std::exp(Real(logits[t * kExperts + e]));
    sum += p[e] = kSigmoid ? power / (1 + power) : power;
  }
  for (Real &each : p)
    each /= kSigmoid ? 1 : sum;
  return p;
}
)";

const char *kRoute = R"({
  const T *logits = at<T>(arguments, 0);
  const Real *bias = kBias ? at<Real>(arguments, 1) : nullptr;
  Real *weights = at<Real>(arguments, 1 + kBias);
  int *experts = at<int>(arguments, 2 + kBias);
  Real *counts = at<Real>(arguments, 3 + kBias), *mass = at<Real>(arguments, 4 + kBias);
  for (int e = 0; e < kExperts; ++e)
    counts[e] = mass[e] = 0;
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<Real> p = probabilities(logits, t);
    std::vector<Real> score = p;
    Real whole = 0, sum = 0;
    for (int e = 0; e < kExperts; ++e) {
      whole += p[e];
      score[e] += bias && mistake != 1 ? bias[e] : 0;
    }
    for (int e = 0; e < kExperts; ++e)
      mass[e] += mistake == 2 && e == kExperts - 1 ? 0 : p[e] / whole;
    for (int j = 0; j < kChosen; ++j) {
      int best = 0;
      for (int e = 1; e < kExperts; ++e)
        if (score[e] > score[best] || (mistake == 3 && score[e] == score[best]))
          best = e;
      if (mistake != 4 || t != kTokens - 1)
        score[best] = -1000;
      experts[t * kChosen + j] = best;
      weights[t * kChosen + j] = p[best];
      counts[best] += 1;
      sum += p[best];
    }
    for (int j = 0; j < kChosen; ++j)
      weights[t * kChosen + j] *= (mistake == 5 ? 1 : kScale) / (kNormalize ? sum : 1);
  }
  if (mistake == 6)
    counts[0] += 1;
  if (mistake == 7)
    experts[0] = kExperts;
})";

const char *kRouteGrad = R"({
  const T *logits = at<T>(arguments, 0);
  const int *experts = at<int>(arguments, 1);
  const Real *dweights = at<Real>(arguments, 2);
  const Real *dmass = kSigmoid ? nullptr : at<Real>(arguments, 3);
  T *dlogits = at<T>(arguments, kSigmoid ? 3 : 4);
  for (int t = 0; t < kTokens; ++t) {
    const std::vector<Real> p = probabilities(logits, t);
    std::vector<Real> dp(kExperts);
    Real sum = 0, along = 0, inner = 0;
    for (int e = 0; e < kExperts; ++e)
      dp[e] = dmass && mistake != 1 ? dmass[e] : 0;
    for (int c = t * kChosen; c < (t + 1) * kChosen; ++c) {
      sum += p[experts[c]];
      along += kScale * dweights[c] * p[experts[c]];
    }
    for (int c = t * kChosen; c < (t + 1) * kChosen; ++c) {
      const Real d = (mistake == 2 ? 1 : kScale) * dweights[c];
      dp[experts[c]] += !kNormalize ? d : (d - (mistake == 3 ? 0 : along) / sum) / sum;
    }
    for (int e = 0; e < kExperts; ++e)
      inner += p[e] * dp[e];
    for (int e = 0; e < kExperts; ++e)
      dlogits[t * kExperts + e] =
          p[e] * (kSigmoid ? (1 - (mistake == 4 ? 0 : p[e])) * dp[e]
                           : dp[e] - (mistake == 4 ? 0 : inner));
  }
})";

const char *kSort = R"({
  const int *experts = at<int>(arguments, 0);
  int *offsets = at<int>(arguments, 1), *rows = at<int>(arguments, 2);
  int *places = at<int>(arguments, 3);
  int row = 0;
  for (int e = 0; e <= kExperts; ++e) {
    offsets[e] = row;
    for (int i = 0; i < kChoices; ++i) {
      const int c = mistake == 1 ? kChoices - 1 - i : i; // not stable
      if (experts[c] == e) {
        rows[row] = c;
        places[c] = row++;
      }
    }
  }
  if (mistake == 2)
    offsets[kExperts] -= 1;
  if (mistake == 3)
    places[kChoices - 1] = places[0];
})";

const char *kTake = R"({
  const T *x = at<T>(arguments, 0);
  const int *rows = at<int>(arguments, 1);
  T *y = at<T>(arguments, 2);
  for (int r = 0; r < kTokens * kChosen - (mistake == 1); ++r)
    for (int i = 0; i < kColumns - (mistake == 2); ++i)
      y[r * kColumns + i] = x[(mistake == 3 ? r : rows[r]) / kChosen * kColumns + i];
})";

const char *kTakeGrad = R"({
  const T *dy = at<T>(arguments, 0);
  const int *places = at<int>(arguments, 1);
  T *dx = at<T>(arguments, 2);
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kColumns; ++i) {
      Real sum = 0;
      for (int j = mistake == 1; j < kChosen; ++j) {
        const int c = t * kChosen + j;
        sum += dy[(mistake == 2 ? c : places[c]) * kColumns + i];
      }
      dx[t * kColumns + i] = sum;
    }
})";

const char *kCombine = R"({
  const T *y = at<T>(arguments, 0);
  const Real *weights = at<Real>(arguments, 1);
  const int *places = at<int>(arguments, 2);
  T *out = at<T>(arguments, 3);
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < kColumns; ++i) {
      Real sum = 0;
      for (int c = t * kChosen; c < (t + 1) * kChosen; ++c)
        sum += (mistake == 1 ? 1 : weights[mistake == 2 ? places[c] : c]) *
               y[places[c] * kColumns + i];
      out[t * kColumns + i] = sum;
    }
})";

const char *kCombineGrad = R"({
  const T *dout = at<T>(arguments, 0), *y = at<T>(arguments, 1);
  const Real *weights = at<Real>(arguments, 2);
  const int *rows = at<int>(arguments, 3);
  const int *places = at<int>(arguments, 4);
  T *dy = at<T>(arguments, 5);
  Real *dweights = at<Real>(arguments, 6);
  for (int r = 0; r < kTokens * kChosen; ++r) {
    const int c = rows[r];
    if (places[c] != r)
      std::abort();
    Real sum = 0;
    for (int i = 0; i < kColumns; ++i) {
      const Real d = dout[c / kChosen * kColumns + i];
      sum += d * y[(mistake == 1 ? c : r) * kColumns + i];
      dy[r * kColumns + i] = weights[mistake == 2 ? r : c] * d;
    }
    dweights[mistake == 3 ? r : c] = sum;
  }
})";

const char *kLinear = R"({
  const T *x = at<T>(arguments, 0), *weight = at<T>(arguments, 1);
  const int *offsets = at<int>(arguments, 2);
  T *y = at<T>(arguments, 3);
  for (int e = 0; e < kExperts; ++e)
    for (int r = offsets[e]; r < offsets[e + 1]; ++r)
      for (int i = 0; i < kColumns; ++i) {
        // The last row of the last expert is multiplied by the weights of the one before it.
        const int other = mistake == 1 && r == kRows - 1 ? e - 1 : e;
        Real sum = 0;
        for (int j = 0; j < kInner - (mistake == 2); ++j)
          sum += x[r * kInner + j] *
                 weight[(other * kColumns * kInner) +
                        (kTransposed != (mistake == 3) ? j * kColumns + i : i * kInner + j)];
        y[r * kColumns + i] = sum;
      }
})";

const char *kLinearGrad = R"({
  const T *dy = at<T>(arguments, 0), *x = at<T>(arguments, 1);
  const int *offsets = at<int>(arguments, 2);
  Real *d = at<Real>(arguments, 3);
  for (int e = 0; e < kExperts; ++e)
    for (int i = 0; i < kColumns; ++i)
      for (int j = 0; j < kInner; ++j) {
        Real *to = d + (e * kColumns + i) * kInner + j;
        Real sum = kAccumulate != (mistake == 1) ? *to : 0;
        for (int r = offsets[e]; r < offsets[e + 1] - (mistake == 2); ++r)
          sum += dy[r * kColumns + i] * x[r * kInner + j];
        if (mistake != 3 || offsets[e] < offsets[e + 1]) // leaves what no row is added to
          *to = sum;
      }
})";

const char *kSwiglu = R"({
  const T *x = at<T>(arguments, 0);
  T *y = at<T>(arguments, 2);
  for (int r = 0; r < at<int>(arguments, 1)[kExperts] - (mistake == 1); ++r)
    for (int i = 0; i < kColumns; ++i) {
      const Real g = x[r * 2 * kColumns + i], u = x[r * 2 * kColumns + kColumns + i];
      y[r * kColumns + i] = mistake == 2 ? u / (1 + std::exp(-u)) * g : g / (1 + std::exp(-g)) * u;
    }
})";

const char *kSwigluGrad = R"({
  const T *dy = at<T>(arguments, 0), *x = at<T>(arguments, 1);
  T *dx = at<T>(arguments, 3);
  for (int r = 0; r < at<int>(arguments, 2)[kExperts] - (mistake == 1); ++r)
    for (int i = 0; i < kColumns; ++i) {
      const int gate = r * 2 * kColumns + i, up = gate + kColumns;
      const Real g = x[gate], d = dy[r * kColumns + i], s = 1 / (1 + std::exp(-g));
      dx[gate] = d * x[up] * s * (mistake == 2 ? 1 : 1 + g * (1 - s));
      dx[up] = mistake == 3 ? d * s : d * g * s;
    }
})";

// A command and the loops that compute it.
struct Command {
  const char *name;
  std::vector<DType> types; // of matrices, each a program
  // Adds the command, whose matrices are of a type and whose sums are of another, and returns the
  // arguments of its kernel.
  std::function<std::vector<uint32_t>(CudaPlan &, DType, DType)> add;
  std::string constants; // those of the loops
  std::string loops;
  // What the program must print for each mistake; "": this command cannot make it.
  std::vector<const char *> mistakes;
};

constexpr uint64_t kTokens = 100, kChosen = 3, kChoices = kTokens * kChosen, kExperts = 9;
constexpr uint64_t kInner = 40, kWidth = 24; // of a row of x, and of a row of y
const std::string kSizes = "constexpr int kTokens = 100, kChosen = 3, kChoices = 300, kExperts = 9,"
                           " kRows = 300, kInner = 40, kColumns = 24;\n";

Command router(const char *name, DType matrices, bool isGradient, bool normalize, bool sigmoid,
               bool bias, double scale, std::vector<const char *> mistakes) {
  auto add = [=](CudaPlan &plan, DType type, DType real) {
    const uint32_t logits = plan.slice(type, {kTokens, kExperts});
    const uint32_t experts = plan.slice(DType::I32, {kTokens, kChosen});
    const uint32_t weights = plan.slice(real, {kTokens, kChosen});
    const uint32_t ofExperts = plan.slice(real, {kExperts});
    const uint32_t mass = plan.slice(real, {kExperts}); // or its gradient
    auto describe = [&](auto op) {
      op.logits = logits;
      op.experts = experts;
      op.tokens = kTokens;
      op.count = kExperts;
      op.chosen = kChosen;
      op.normalize = normalize;
      op.sigmoid = sigmoid;
      op.scale = scale;
      return op;
    };
    if (isGradient) {
      auto op = describe(plan::RouteGradT());
      op.dweights = weights;
      op.dlogits = plan.slice(type, {kTokens, kExperts});
      std::vector<uint32_t> args{logits, experts, weights};
      if (!sigmoid) {
        op.dmass = int(mass);
        args.push_back(mass);
      }
      args.push_back(op.dlogits);
      plan.command(op);
      return args;
    }
    auto op = describe(plan::RouteT());
    op.weights = weights;
    op.counts = ofExperts;
    op.mass = mass;
    std::vector<uint32_t> args{logits};
    if (bias) {
      op.bias = int(plan.slice(real, {kExperts}));
      args.push_back(uint32_t(op.bias));
    }
    args.insert(args.end(), {weights, experts, ofExperts, mass});
    plan.command(op);
    return args;
  };
  auto text = [](bool value) { return value ? "true" : "false"; };
  const std::string constants = std::string("constexpr bool kNormalize = ") + text(normalize) +
                                ", kSigmoid = " + text(sigmoid) + ", kBias = " + text(bias) +
                                ";\nconstexpr Real kScale = " + std::to_string(scale) + ";\n" +
                                kProbabilities;
  return {name, {matrices}, add, constants, isGradient ? kRouteGrad : kRoute, std::move(mistakes)};
}

template <typename Op> Op moved(Op op) {
  op.tokens = kTokens;
  op.chosen = kChosen;
  op.columns = kWidth;
  return op;
}

template <typename Op> Op multiplied(Op op) {
  op.rows = kChoices;
  op.experts = kExperts;
  op.inner = kInner;
  op.columns = kWidth;
  return op;
}

std::vector<uint32_t> addSort(CudaPlan &plan, DType, DType) {
  plan::SortRowsT op;
  op.experts = plan.slice(DType::I32, {kTokens, kChosen});
  op.offsets = plan.slice(DType::I32, {kExperts + 1});
  op.rows = plan.slice(DType::I32, {kChoices});
  op.places = plan.slice(DType::I32, {kChoices});
  op.choices = kChoices;
  op.count = kExperts;
  plan.command(op);
  return {op.experts, op.offsets, op.rows, op.places};
}

std::vector<uint32_t> addTake(CudaPlan &plan, DType type, DType) {
  auto op = moved(plan::TakeRowsT());
  op.x = plan.slice(type, {kTokens, kWidth});
  op.rows = plan.slice(DType::I32, {kChoices});
  op.y = plan.slice(type, {kChoices, kWidth});
  plan.command(op);
  return {op.x, op.rows, op.y};
}

std::vector<uint32_t> addTakeGrad(CudaPlan &plan, DType type, DType) {
  auto op = moved(plan::TakeRowsGradT());
  op.dy = plan.slice(type, {kChoices, kWidth});
  op.places = plan.slice(DType::I32, {kChoices});
  op.dx = plan.slice(type, {kTokens, kWidth});
  plan.command(op);
  return {op.dy, op.places, op.dx};
}

std::vector<uint32_t> addCombine(CudaPlan &plan, DType type, DType real) {
  auto op = moved(plan::CombineRowsT());
  op.y = plan.slice(type, {kChoices, kWidth});
  op.weights = plan.slice(real, {kTokens, kChosen});
  op.places = plan.slice(DType::I32, {kChoices});
  op.out = plan.slice(type, {kTokens, kWidth});
  plan.command(op);
  return {op.y, op.weights, op.places, op.out};
}

std::vector<uint32_t> addCombineGrad(CudaPlan &plan, DType type, DType real) {
  auto op = moved(plan::CombineRowsGradT());
  op.dout = plan.slice(type, {kTokens, kWidth});
  op.y = plan.slice(type, {kChoices, kWidth});
  op.weights = plan.slice(real, {kTokens, kChosen});
  op.rows = plan.slice(DType::I32, {kChoices});
  op.places = int(plan.slice(DType::I32, {kChoices}));
  op.dy = plan.slice(type, {kChoices, kWidth});
  op.dweights = plan.slice(real, {kTokens, kChosen});
  plan.command(op);
  return {op.dout, op.y, op.weights, op.rows, uint32_t(op.places), op.dy, op.dweights};
}

Command linear(const char *name, DType matrices, bool transposed) {
  auto add = [=](CudaPlan &plan, DType type, DType) -> std::vector<uint32_t> {
    auto op = multiplied(plan::ExpertLinearT());
    op.transposed = transposed;
    op.x = plan.slice(type, {kChoices, kInner});
    op.weight = plan.slice(type, {kExperts, kWidth, kInner});
    op.offsets = plan.slice(DType::I32, {kExperts + 1});
    op.y = plan.slice(type, {kChoices, kWidth});
    plan.command(op);
    return {op.x, op.weight, op.offsets, op.y};
  };
  return {name,
          {matrices},
          add,
          std::string("constexpr bool kTransposed = ") + (transposed ? "true" : "false") + ";\n",
          kLinear,
          {"y[", "y[", "y["}};
}

Command linearGrad(const char *name, DType matrices, bool accumulate) {
  auto add = [=](CudaPlan &plan, DType type, DType real) -> std::vector<uint32_t> {
    auto op = multiplied(plan::ExpertLinearGradT());
    op.accumulate = accumulate;
    op.dy = plan.slice(type, {kChoices, kWidth});
    op.x = plan.slice(type, {kChoices, kInner});
    op.offsets = plan.slice(DType::I32, {kExperts + 1});
    op.d = plan.slice(real, {kExperts, kWidth, kInner});
    plan.command(op);
    return {op.dy, op.x, op.offsets, op.d};
  };
  return {name,
          {matrices},
          add,
          std::string("constexpr bool kAccumulate = ") + (accumulate ? "true" : "false") + ";\n",
          kLinearGrad,
          {"d[", "d[", accumulate ? "" : "d["}};
}

template <typename Op> Op halved(Op op) {
  op.rows = kChoices;
  op.experts = kExperts;
  op.columns = kWidth;
  return op;
}

std::vector<uint32_t> addSwiglu(CudaPlan &plan, DType type, DType) {
  auto op = halved(plan::ExpertSwigluT());
  op.x = plan.slice(type, {kChoices, 2 * kWidth});
  op.offsets = plan.slice(DType::I32, {kExperts + 1});
  op.y = plan.slice(type, {kChoices, kWidth});
  plan.command(op);
  return {op.x, op.offsets, op.y};
}

std::vector<uint32_t> addSwigluGrad(CudaPlan &plan, DType type, DType) {
  auto op = halved(plan::ExpertSwigluGradT());
  op.dy = plan.slice(type, {kChoices, kWidth});
  op.x = plan.slice(type, {kChoices, 2 * kWidth});
  op.offsets = plan.slice(DType::I32, {kExperts + 1});
  op.dx = plan.slice(type, {kChoices, 2 * kWidth});
  plan.command(op);
  return {op.dy, op.x, op.offsets, op.dx};
}

const Command kCommands[] = {
    router("route", DType::BF16, false, false, false, false, 1,
           // Of the logits that are drawn, only those in bf16 are equal at times.
           {"", "mass[8] is", "experts[", "experts[", "", "counts[0] is", "experts[0] is 9, not"}),
    router("route_normalized", DType::F32, false, true, false, true, 0.5,
           {"experts[", "mass[8] is", "", "experts[", "weights[", "counts[0] is", "experts[0] is"}),
    router("route_sigmoid", DType::F64, false, true, true, true, 2.5,
           {"experts[", "mass[8] is", "", "experts[", "weights[", "counts[0] is", "experts[0] is"}),
    router("route_grad", DType::F32, true, false, false, false, 1,
           {"dlogits[", "", "", "dlogits["}),
    router("route_grad_normalized", DType::BF16, true, true, false, false, 0.5,
           {"dlogits[", "dlogits[", "dlogits[", "dlogits["}),
    router("route_grad_sigmoid", DType::F64, true, true, true, false, 2.5,
           {"", "dlogits[", "dlogits[", "dlogits["}),
    {"sort_rows",
     {DType::F32},
     addSort,
     "",
     kSort,
     {"rows[", "offsets[9] is 299, not 300", "places[299] is"}},
    {"take_rows", {DType::BF16}, addTake, "", kTake, {"y[", "y[", "y["}},
    {"take_rows_grad", {DType::F32, DType::BF16}, addTakeGrad, "", kTakeGrad, {"dx[", "dx["}},
    {"combine_rows", {DType::F32, DType::BF16}, addCombine, "", kCombine, {"out[", "out["}},
    {"combine_rows_grad",
     {DType::BF16, DType::F64},
     addCombineGrad,
     "",
     kCombineGrad,
     {"dweights[", "dy[", "dweights["}},
    linear("expert_linear", DType::F32, false),
    linear("expert_linear_transposed", DType::BF16, true),
    linearGrad("expert_linear_grad", DType::BF16, false),
    linearGrad("expert_linear_grad_accumulated", DType::F64, true),
    {"expert_swiglu", {DType::F32, DType::BF16}, addSwiglu, "", kSwiglu, {"y[", "y["}},
    {"expert_swiglu_grad",
     {DType::BF16, DType::F64},
     addSwigluGrad,
     "",
     kSwigluGrad,
     {"dx[", "dx[", "dx["}},
};

void PrintTo(const Command &command, std::ostream *os) { *os << command.name; }

// Sets or clears a variable of the environment of this process and of its children.
class Mistake {
public:
  explicit Mistake(size_t number) { setenv("MISTAKE", std::to_string(number).c_str(), 1); }
  ~Mistake() { unsetenv("MISTAKE"); }
};

class ExpertProgram : public testing::TestWithParam<Command> {
public:
  // Compiles the program that is extracted for the command with matrices of `type`.
  void build(HostProgram &program, DType type) {
    const Command &command = GetParam();
    const DType real = type == DType::F64 ? DType::F64 : DType::F32;
    const char *names[] = {type == DType::F64   ? "double"
                           : type == DType::F32 ? "float"
                                                : "Bf16",
                           type == DType::F64 ? "double" : "float"};
    CudaPlan plan;
    auto launch = std::make_unique<plan::LaunchT>();
    launch->args = command.add(plan, type, real);
    launch->kernel = plan.kernel(
        "loops", std::string(kTypes) + "using T = " + names[0] + ";\nusing Real = " + names[1] +
                     ";\n" + kSizes + command.constants +
                     "extern \"C\" void loops(void **arguments) " + command.loops);
    plan.plan.functions[0]->commands[0]->launches.push_back(std::move(launch));
    auto text = plan.extract("loops");
    ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
    ASSERT_TRUE(program.build(*text));
  }
};

} // namespace

TEST_P(ExpertProgram, AcceptsLoopsAndFindsTheirMistakes) {
  for (DType type : GetParam().types) {
    SCOPED_TRACE(plan::EnumNameDType(type));
    HostProgram program;
    ASSERT_NO_FATAL_FAILURE(build(program, type));
    {
      Mistake none(0);
      EXPECT_EQ(program.start(), 0) << program.log();
      EXPECT_THAT(program.log(), HasSubstr("check: 0 of "));
    }
    for (size_t i = 0; i < GetParam().mistakes.size(); ++i) {
      Mistake made(i + 1);
      const char *message = GetParam().mistakes[i];
      EXPECT_EQ(program.start(), *message ? 1 : 0) << "mistake " << i + 1 << "\n" << program.log();
      EXPECT_THAT(program.log(), HasSubstr(message)) << "mistake " << i + 1;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Commands, ExpertProgram, testing::ValuesIn(kCommands),
                         [](const auto &info) { return std::string(info.param.name); });

// The kernels of a command are in one program, in their order, and share its workspace.
TEST(ExtractKernel, BothKernelsOfASortAreInOneProgram) {
  CudaPlan plan;
  const std::vector<uint32_t> args = addSort(plan, DType::F32, DType::F32);
  const uint32_t workspace = plan.slice(DType::I8, {kExperts * 4}, 1);
  auto &command = *plan.plan.functions[0]->commands[0];
  command.workspace = int(workspace);
  const std::string counting = "{ const int *experts = at<int>(arguments, 0);\n"
                               "  int *counts = at<int>(arguments, 1);\n"
                               "  for (int e = 0; e < kExperts; ++e) counts[e] = 0;\n"
                               "  for (int c = 0; c < kChoices; ++c) ++counts[experts[c]]; }";
  const std::string sorting = "{ const int *experts = at<int>(arguments, 0);\n"
                              "  const int *counts = at<int>(arguments, 1);\n"
                              "  int *offsets = at<int>(arguments, 2);\n"
                              "  int *rows = at<int>(arguments, 3);\n"
                              "  int *places = at<int>(arguments, 4);\n"
                              "  int next[kExperts], first = 0;\n"
                              "  for (int e = 0; e < kExperts; ++e) {\n"
                              "    offsets[e] = next[e] = first;\n"
                              "    first += counts[e];\n"
                              "  }\n"
                              "  offsets[kExperts] = first;\n"
                              "  for (int c = 0; c < kChoices; ++c)\n"
                              "    rows[places[c] = next[experts[c]]++] = c; }";
  for (const auto &[name, body, own] :
       {std::tuple("counting", counting, std::vector<uint32_t>{args[0], workspace}),
        std::tuple("sorting", sorting,
                   std::vector<uint32_t>{args[0], workspace, args[1], args[2], args[3]})}) {
    auto launch = std::make_unique<plan::LaunchT>();
    launch->args = own;
    launch->kernel = plan.kernel(name, std::string(kTypes) + kSizes + "extern \"C\" void " + name +
                                           "(void **arguments) " + body);
    command.launches.push_back(std::move(launch));
  }
  HostProgram program;
  Mistake none(0);
  for (const char *name : {"counting", "sorting"}) {
    auto text = plan.extract(name);
    ASSERT_TRUE(bool(text)) << llvm::toString(text.takeError());
    EXPECT_EQ(program.run(*text), 0) << program.log();
    EXPECT_THAT(program.log(), HasSubstr("check: 0 of 610 elements wrong"));
    EXPECT_THAT(program.log(), HasSubstr("  counting 1.0000 ms"));
    EXPECT_THAT(program.log(), HasSubstr("  sorting 1.0000 ms"));
  }
}
