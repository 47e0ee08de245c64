// Recompute = "auto" on the models of models/configs: what budgets from too little to more
// than enough get, with every plan packed for real.
#include "compiler/search/RecomputeSearch.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/emit/Emit.h"
#include "compiler/kernels/Target.h"
#include "models/decoder/Model.h"
#include "test/Draws.h"
#include "test/ground/config/ShippedConfig.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

using namespace lmc;
using namespace mlir;

//===-- Candidates, of made-up numbers
//-----------------------------------------------------------===//

TEST(RecomputeCandidates, RiseInSecondsAndHaveTheUniformOnes) {
  RecomputeChoiceProblem problem;
  problem.kinds = {{{100, 10, 1}, {60, 30, 2}, {60, 30, 2}, {10, 40, 4}}};
  problem.layers.assign(12, 0);
  problem.fixedBytes = 1000;
  problem.headAndLossBytes = 50;
  std::vector<RecomputeCandidate> candidates = recomputeCandidates(problem, 20);
  std::map<std::vector<int64_t>, RecomputeCandidate> byOptions;
  for (size_t i = 0; i < candidates.size(); ++i) {
    EXPECT_LE(candidates[i ? i - 1 : 0].seconds, candidates[i].seconds);
    byOptions[candidates[i].options] = candidates[i];
  }
  EXPECT_EQ(byOptions.size(), candidates.size()) << "none twice";
  EXPECT_GT(candidates.size(), 10u);
  auto uniform = [&](int64_t option) { return std::vector<int64_t>(12, option); };
  ASSERT_TRUE(byOptions.count(uniform(0)));
  EXPECT_EQ(byOptions[uniform(0)].boundBytes, 1000 + 12 * 100 + 50u);
  EXPECT_EQ(byOptions[uniform(0)].seconds, 12);
  ASSERT_TRUE(byOptions.count(uniform(3)));
  EXPECT_EQ(byOptions[uniform(3)].boundBytes, 1000 + 12 * 10 + 50u);
  EXPECT_TRUE(byOptions.count(uniform(1)));
  EXPECT_FALSE(byOptions.count(uniform(2))) << "the same as the one before it";
}

TEST(RecomputeCandidates, StepsThatTakeDaysToo) {
  RecomputeChoiceProblem problem;
  problem.kinds = {{{100, 0, 1e6}, {10, 0, 2e6}}};
  problem.layers.assign(4, 0);
  std::vector<RecomputeCandidate> candidates = recomputeCandidates(problem, 20);
  ASSERT_EQ(candidates.size(), 5u) << "none to four layers of the second option";
  EXPECT_EQ(candidates.front().seconds, 4e6);
  EXPECT_EQ(candidates.back().seconds, 8e6);
}

// The choices of one chunk serve others where this is right: with head and loss above and below the
// bytes that layers need for a moment, they are those of each chunk alone, but for those that take
// as much time and memory as another one with the same options, or more.
TEST(RecomputeCandidates, OfEachChunkAreThoseOfThisChunkAlone) {
  RecomputeChoiceProblem problem;
  problem.kinds = {{{100, 10, 1}, {60, 35, 2}, {10, 40, 4}}, {{80, 20, 1}, {20, 90, 3}}};
  problem.layers = {0, 0, 1, 0, 1, 1, 0, 0, 1, 0};
  problem.fixedBytes = 1000;
  const std::vector<LossChunk> chunks = {{1, 0, 5, 40},  {3, 0, 10, 30}, {2, 0, 60, 20},
                                         {4, 0, 90, 10}, {8, 0, 300, 5}, {16, 0, 700, 2}};
  std::multiset<std::tuple<int64_t, std::vector<int64_t>, double, uint64_t>> alone, together;
  for (const LossChunk &chunk : chunks) {
    problem.headAndLossBytes = chunk.headAndLossBytes;
    for (const RecomputeCandidate &each : recomputeCandidates(problem, 20))
      alone.insert({chunk.tokens, each.options, each.seconds + chunk.seconds, each.boundBytes});
  }
  for (const RecomputeCandidate &each : recomputeCandidates(problem, 20, {}, chunks))
    together.insert({each.lossChunk, each.options, each.seconds, each.boundBytes});
  EXPECT_TRUE(std::includes(alone.begin(), alone.end(), together.begin(), together.end()));
  EXPECT_LT(together.size(), alone.size());
  for (const auto &[tokens, options, seconds, bytes] : alone)
    EXPECT_TRUE(std::any_of(together.begin(), together.end(), [&](const auto &other) {
      return std::get<1>(other) == options && std::get<2>(other) <= seconds &&
             std::get<3>(other) <= bytes;
    })) << tokens;
}

//===-- Probes, of made-up numbers ----------------------------------------------------------===//

TEST(LayerMeasures, ALongerModelHasMoreLayersBetweenTheOutermost) {
  PlanMeasures measures;
  measures.otherSeconds = 10;
  measures.layers = {{.seconds = 1}, {.seconds = 2}, {.seconds = 4}};
  EXPECT_EQ(microStepSeconds(measures, 3), 17);
  EXPECT_EQ(microStepSeconds(measures, 12), 10 + 1 + 10 * 2 + 4);
  measures.layers.resize(2);
  EXPECT_EQ(microStepSeconds(measures, 2), 13);
}

//===-- Real plans --------------------------------------------------------------------------===//

namespace {

struct Outcome {
  uint64_t peakBytes = 0;
  double seconds = 0; // of a step, predicted from the plan
};

// A model of models/configs on one H100, and a search for what its layers recompute.
class SearchedJob {
public:
  explicit SearchedJob(const std::string &name, const std::vector<std::string> &settings = {},
                       MLIRContext::Threading threading = MLIRContext::Threading::ENABLED)
      : context(registry(), threading), config(onOneH100(name, settings)), phases(config, options) {
    model = codegen::costModelOf(config.target.device, *cost::loadDeviceSpec("h100-sxm"));
    start = buildModel(config, context);
    for (Phase phase : {Phase::Autodiff, Phase::Distribute})
      EXPECT_TRUE(succeeded(phases.run(phase, *start)));
    auto made = RecomputeSearch::begin(*start, config, *model, phases);
    EXPECT_TRUE(succeeded(made) && succeeded((*made)->complete()));
    search = std::move(*made);
  }

  Outcome outcomeOf(size_t candidate) {
    auto [known, isNew] = outcomes.try_emplace(candidate);
    if (!isNew)
      return known->second;
    auto module = search->planned(candidate);
    EXPECT_TRUE(succeeded(module));
    known->second = {plannedBytes(**module), secondsOf(**module)};
    return known->second;
  }

  // The named mode, compiled as `memory.recompute` would have it.
  Outcome named(RecomputeMode mode) {
    Config job = config;
    job.memory.recompute = mode;
    PhaseRunner runner(job, options);
    OwningOpRef<ModuleOp> module = start->clone();
    for (Phase phase : {Phase::Memory, Phase::Fusion, Phase::Schedule, Phase::Buffers})
      EXPECT_TRUE(succeeded(runner.run(phase, *module)));
    return {plannedBytes(*module), secondsOf(*module)};
  }

  BudgetSearch &budgets() { return search->budgets(); }

  RecomputeSearch::MakeShorter makeShorter() {
    return [this](int64_t layers) -> FailureOr<OwningOpRef<ModuleOp>> {
      Config shorter = config;
      shorter.model.numHiddenLayers = layers;
      OwningOpRef<ModuleOp> module = buildModel(shorter, context);
      for (Phase phase : {Phase::Autodiff, Phase::Distribute})
        if (failed(phases.run(phase, *module)))
          return failure();
      return module;
    };
  }

  MLIRContext context;
  Config config;
  CompileOptions options;
  PhaseRunner phases;
  std::unique_ptr<cost::CostModel> model;
  OwningOpRef<ModuleOp> start;
  std::unique_ptr<RecomputeSearch> search;

private:
  static Config onOneH100(const std::string &name, std::vector<std::string> settings) {
    for (const char *always :
         {"distributed.nodes=1", "distributed.devices_per_node=1", "target.device=cuda:sm_90a",
          "memory.recompute=auto", "memory.budget=0"})
      settings.push_back(always);
    return shippedConfig(name, settings);
  }

  static DialectRegistry registry() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }

  double secondsOf(ModuleOp module) {
    std::string bytes;
    EXPECT_TRUE(succeeded(emitPlan(module, config, PlanDetails(), bytes)));
    return cost::planCost(*plan::GetPlan(bytes.data()), *model).stepSeconds;
  }

  std::map<size_t, Outcome> outcomes;
};

// Budgets from the least that works to what needs no recompute: a smaller budget never
// takes more memory, and is never predicted to be faster.
void sweepBudgets(const char *name) {
  SearchedJob job(name);
  BudgetSearch &budgets = job.budgets();
  std::optional<size_t> smallest = budgets.smallest(), none = budgets.fastest(UINT64_MAX);
  ASSERT_TRUE(smallest && none);
  const uint64_t least = *budgets.bytes(*smallest), most = *budgets.bytes(*none);
  ASSERT_LT(least, most);
  EXPECT_EQ(budgets.fastest(least - 1), std::nullopt);

  // Two predictions of the same commands differ by rounding.
  constexpr double kRounding = 1e-9;
  Outcome before{UINT64_MAX, 0};
  std::set<size_t> taken;
  const int count = int(test::drawCount(40));
  for (int i = count; i >= 0; --i) {
    const uint64_t budget = least + (most - least) / uint64_t(count) * uint64_t(i);
    std::optional<size_t> candidate = budgets.fastest(budget);
    ASSERT_TRUE(candidate) << budget;
    taken.insert(*candidate);
    Outcome outcome = job.outcomeOf(*candidate);
    EXPECT_LE(outcome.peakBytes, budget);
    EXPECT_LE(outcome.peakBytes, before.peakBytes) << "a smaller budget took more";
    EXPECT_GE(outcome.seconds, before.seconds * (1 - kRounding)) << "a smaller budget was faster";
    before = outcome;
  }
  std::printf("%s: %zu candidates, %zu taken, %zu measured; %.2f to %.2f GiB\n", name,
              job.search->candidates().size(), taken.size(), budgets.attempts().size(),
              double(least) / (1 << 30), double(most) / (1 << 30));
  EXPECT_GE(taken.size(), std::min<size_t>(size_t(count) / 2, 20)) << "budgets in between are used";

  // What was known before a candidate was packed. Layers merge kernels with their neighbours, and
  // the outermost have one neighbour: sums over layers are right to a hundred-thousandth.
  for (const BudgetSearch::Attempt &attempt : budgets.attempts())
    EXPECT_LE(job.search->candidates()[attempt.candidate].boundBytes, attempt.bytes)
        << "no bound: " << job.search->nameOf(job.search->candidates()[attempt.candidate]);
  Outcome fastest = job.outcomeOf(*none);
  double base = fastest.seconds - job.search->candidates()[*none].seconds;
  for (size_t candidate : taken)
    EXPECT_NEAR(base + job.search->candidates()[candidate].seconds,
                job.outcomeOf(candidate).seconds, 1e-5 * fastest.seconds)
        << "what layers take does not add up";

  // A named mode that fits is never faster.
  for (RecomputeMode mode : {RecomputeMode::None, RecomputeMode::Activation, RecomputeMode::Full,
                             RecomputeMode::Block}) {
    Outcome named = job.named(mode);
    std::optional<size_t> candidate = budgets.fastest(named.peakBytes);
    ASSERT_TRUE(candidate) << recomputeModeName(mode).str();
    Outcome found = job.outcomeOf(*candidate);
    std::printf("%s %s: %.2f GiB %.4f s, auto %.2f GiB %.4f s\n", name,
                recomputeModeName(mode).str().c_str(), double(named.peakBytes) / (1 << 30),
                named.seconds, double(found.peakBytes) / (1 << 30), found.seconds);
    EXPECT_LE(found.seconds, named.seconds * (1 + kRounding));
    EXPECT_LE(found.peakBytes, named.peakBytes);
  }
}

} // namespace

TEST(RecomputeSearch, DrawnBudgetsOfLlama1b) { sweepBudgets("llama1b.toml"); }
TEST(RecomputeSearch, DrawnBudgetsOfMistral7b) { sweepBudgets("mistral-7b.toml"); }

// Fewer layers than options, so that several probes are needed.
TEST(RecomputeSearch, TwoLayers) {
  SearchedJob job("test-tiny.toml");
  ASSERT_EQ(job.search->options().layers.size(), 2u);
  for (size_t candidate = 0; candidate < job.search->candidates().size(); ++candidate) {
    std::optional<uint64_t> bytes = job.budgets().bytes(candidate);
    ASSERT_TRUE(bytes);
    EXPECT_EQ(*bytes, job.outcomeOf(candidate).peakBytes) << "the bound was above the plan";
  }
}

// Probes of a model with fewer layers say the same.
TEST(RecomputeSearch, ShorterProbesMeasureTheSame) {
  SearchedJob job("llama1b.toml");
  auto made =
      RecomputeSearch::begin(*job.start, job.config, *job.model, job.phases, job.makeShorter());
  ASSERT_TRUE(succeeded(made) && succeeded((*made)->complete()));
  const RecomputeChoiceProblem &whole = job.search->measured(), &part = (*made)->measured();
  EXPECT_EQ(whole.fixedBytes, part.fixedBytes);
  EXPECT_EQ(whole.headAndLossBytes, part.headAndLossBytes);
  ASSERT_EQ(whole.kinds.size(), part.kinds.size());
  for (size_t option = 0; option < whole.kinds[0].size(); ++option) {
    EXPECT_EQ(whole.kinds[0][option].keptBytes, part.kinds[0][option].keptBytes) << option;
    EXPECT_EQ(whole.kinds[0][option].transientBytes, part.kinds[0][option].transientBytes);
    EXPECT_NEAR(whole.kinds[0][option].seconds, part.kinds[0][option].seconds,
                1e-9 * whole.kinds[0][option].seconds);
  }
}

// Probes that run on several threads at once measure what they measure one after the other.
TEST(RecomputeSearch, ProbesOnThreadsMeasureTheSame) {
  SearchedJob many("llama1b.toml", {}, MLIRContext::Threading::ENABLED);
  SearchedJob one("llama1b.toml", {}, MLIRContext::Threading::DISABLED);
  const RecomputeChoiceProblem &a = many.search->measured(), &b = one.search->measured();
  EXPECT_EQ(a.headAndLossBytes, b.headAndLossBytes);
  ASSERT_EQ(a.kinds.size(), b.kinds.size());
  ASSERT_EQ(a.kinds[0].size(), b.kinds[0].size());
  for (size_t option = 0; option < a.kinds[0].size(); ++option) {
    EXPECT_EQ(a.kinds[0][option].keptBytes, b.kinds[0][option].keptBytes) << option;
    EXPECT_EQ(a.kinds[0][option].transientBytes, b.kinds[0][option].transientBytes) << option;
    EXPECT_EQ(a.kinds[0][option].seconds, b.kinds[0][option].seconds) << option;
  }
  ASSERT_EQ(many.search->candidates().size(), one.search->candidates().size());
  for (size_t i = 0; i < one.search->candidates().size(); ++i)
    EXPECT_EQ(many.search->candidates()[i].options, one.search->candidates()[i].options) << i;
}

// A plan that is emitted to be measured leaves variables and texts out, and has the same bytes and
// times.
TEST(RecomputeSearch, AMeasuredPlanHasTheFiguresOfTheWholeOne) {
  SearchedJob job("test-tiny.toml");
  auto module = job.search->planned(0);
  ASSERT_TRUE(succeeded(module));
  std::string whole, part;
  ASSERT_TRUE(succeeded(emitPlan(**module, job.config, PlanDetails(), whole)));
  ASSERT_TRUE(succeeded(emitPlan(**module, job.config, measuredDetails(), part)));
  EXPECT_LT(part.size(), whole.size() / 2);
  const plan::Plan &a = *plan::GetPlan(whole.data()), &b = *plan::GetPlan(part.data());
  EXPECT_EQ(cost::planCost(a, *job.model).stepSeconds, cost::planCost(b, *job.model).stepSeconds);
  EXPECT_EQ(cost::warningsOf(a, *job.model), cost::warningsOf(b, *job.model));
  const PlanMeasures all = measureLayers(a, *job.model), measured = measureLayers(b, *job.model);
  EXPECT_EQ(a.arenas()->Get(0)->bytes(), b.arenas()->Get(0)->bytes());
  EXPECT_EQ(all.headAndLossBytes, measured.headAndLossBytes);
  EXPECT_EQ(all.otherSeconds, measured.otherSeconds);
  ASSERT_EQ(all.layers.size(), measured.layers.size());
  for (size_t i = 0; i < all.layers.size(); ++i) {
    EXPECT_EQ(all.layers[i].keptBytes, measured.layers[i].keptBytes) << i;
    EXPECT_EQ(all.layers[i].transientBytes, measured.layers[i].transientBytes) << i;
    EXPECT_EQ(all.layers[i].seconds, measured.layers[i].seconds) << i;
  }
}

// What fewer probes find is the first candidate of all probes, with its chunk of the loss, and only
// where it fits.
static void expectFirstCandidate(const char *name, std::vector<std::string> settings) {
  SearchedJob job(name, std::move(settings));
  const std::vector<int64_t> sizes = lossChunkSizes(*job.start);
  ASSERT_GT(sizes.size(), 1u);
  auto whole = RecomputeSearch::begin(*job.start, job.config, *job.model, job.phases,
                                      job.makeShorter(), sizes);
  ASSERT_TRUE(succeeded(whole) && succeeded((*whole)->complete()));
  const RecomputeCandidate &first = (*whole)->candidates().front();
  const uint64_t bytes = *(*whole)->budgets().bytes(0);
  auto begun = RecomputeSearch::begin(*job.start, job.config, *job.model, job.phases,
                                      job.makeShorter(), sizes);
  ASSERT_TRUE(succeeded(begun));
  auto found = (*begun)->fastestOfAll(bytes);
  ASSERT_TRUE(succeeded(found));
  ASSERT_TRUE(found->module);
  EXPECT_EQ(plannedBytes(*found->module), bytes);
  EXPECT_EQ(found->lossChunk, first.lossChunk);
  auto tooSmall = (*begun)->fastestOfAll(bytes - 1);
  ASSERT_TRUE(succeeded(tooSmall));
  EXPECT_FALSE(tooSmall->module);
  ASSERT_TRUE(succeeded((*begun)->complete()));
  EXPECT_EQ((*begun)->candidates().front().options, first.options);
  EXPECT_EQ((*begun)->candidates().front().seconds, first.seconds);
}

TEST(RecomputeSearch, TheFastestOfAllIsTheFirstCandidateOfMistral7b) {
  expectFirstCandidate("mistral-7b.toml", {});
}
TEST(RecomputeSearch, TheFastestOfAllIsTheFirstCandidateOfLlama38b) {
  expectFirstCandidate("llama3-8b.toml", {"training.batch_size=4", "training.micro_batch_size=1"});
}
