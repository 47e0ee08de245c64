// Quick forecasts save time in three ways.
//
// * They compile models with 3 and 6 layers and extrapolate: a layer adds a third of the
//   difference. The workspace is assumed to be as large as its lower bound; packing adds less than
//   0.4% to it (compiler/algorithms/PackingSearch.h).
// * They do not search for the best values of keys that are "auto". First, they assume the fastest
//   plan: it keeps every value, has the fastest known chunk of the loss and the most overlap, and
//   sums gradients in the last micro-step. If this plan fits, it is the forecast. Otherwise they
//   assume the smallest plan: it recomputes whole layers, has the smallest chunk and no overlap,
//   and sums gradients in each micro-step. If this plan does not fit, no plan does.
// * Some callers only ask if a job reaches a certain rate in tokens/s. If even the fastest plan is
//   more than 2% too slow, the job is not compiled.
//
// Jobs are compiled completely if their smallest plan fits but their fastest plan does not, if a
// plan is within 2% of the budget, or if they have few layers.
//
// Several strategies may give the same plan, which is compiled only once. ZeRO-2 gives the plan of
// ZeRO-1 if it sums gradients only in the last micro-step, or if there is only one micro-step.
#include "compiler/driver/Forecast.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Registration.h"
#include "compiler/kernels/Target.h"
#include "compiler/search/RecomputeSearch.h"
#include "ground/plan/PlannedBytes.h"

#include "llvm/ADT/STLExtras.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <future>
#include <mutex>
#include <thread>

using namespace mlir;
using namespace lmc;

KnownChunks lmc::knownChunks(const plan::Plan &plan) {
  KnownChunks known;
  double least = 0;
  for (const plan::Report *report : *plan.reports()) {
    if (report->name()->string_view() != "loss_chunk")
      continue;
    const nlohmann::json chunks = nlohmann::json::parse(report->json()->str());
    for (const nlohmann::json &each : chunks["candidates"]) {
      const int64_t tokens = each["tokens"];
      const double seconds = each["seconds_per_token"];
      if (!known.smallest || tokens < known.smallest)
        known.smallest = tokens;
      if (!known.fastest || seconds < least) {
        known.fastest = tokens;
        least = seconds;
      }
    }
  }
  return known;
}

Forecast lmc::forecastOf(const plan::Plan &plan, const CompileResult &result,
                         const Config &config) {
  Forecast forecast;
  forecast.fits = result.fits;
  forecast.peakBytes = plannedBytes(plan);
  forecast.budgetBytes = result.budgetBytes;
  auto spec = cost::deviceSpecOf(config.target, config.directory);
  if (!spec)
    return forecast;
  const cost::PlanCost cost =
      cost::planCost(plan, *codegen::costModelOf(config.target.device, *spec));
  forecast.stepSeconds = cost.stepSeconds;
  forecast.tokensPerSecond = cost.tokensPerSecond;
  forecast.mfuCausal = cost.mfuCausal;
  forecast.exposedSeconds = cost.exposedSeconds;
  return forecast;
}

bool lmc::isLikelyTooLarge(const Config &config, const Config &own, const plan::Plan &plan) {
  // The bytes of state, summed over the ranks that divide the state among themselves.
  const double state =
      double(plan.arenas()->Get(0)->bytes()) * double(own.distributed.shardRanks());
  return plan.memory_budget() > 0 &&
         state / double(config.distributed.shardRanks()) > double(plan.memory_budget());
}

namespace {

// The figures of a compiled job that forecasts use.
struct Compiled {
  Forecast forecast;
  uint64_t lowerBoundBytes = 0; // over all arenas
  double flopsPerToken = 0;
};

// Returns a job with the plan of `config`: the same job for all configurations with this plan.
Config simplest(Config config) {
  DistributedConfig &distributed = config.distributed;
  if (config.training.gradientAccumulationSteps == 1)
    distributed.reduce = "each"; // the same plan as with "last": the only micro-step is the last
  if (distributed.strategy == ShardingStrategy::Zero2 &&
      (distributed.reduce == "last" || config.training.gradientAccumulationSteps == 1))
    distributed.strategy = ShardingStrategy::Zero1;
  if (distributed.strategy == ShardingStrategy::Zero1 && distributed.reduce == "auto")
    distributed.reduce = "last"; // "auto" is "last" if no gradients are divided (docs/config.md)
  return config;
}

// The compiled jobs of all threads, each compiled only once.
class CompiledJobs {
public:
  // The compiled job and an empty text. If the job does not compile: nullopt and the error's text.
  using Outcome = std::pair<std::optional<Compiled>, std::string>;

  Outcome get(const Config &config, llvm::function_ref<Outcome()> compile) {
    std::promise<Outcome> promise;
    std::shared_future<Outcome> known;
    {
      std::lock_guard guard(mutex);
      for (const auto &[other, outcome] : jobs)
        if (areEqual(other, config))
          known = outcome;
      if (!known.valid())
        jobs.emplace_back(config, promise.get_future().share());
    }
    if (known.valid())
      return known.get();
    Outcome outcome = compile();
    promise.set_value(outcome);
    return outcome;
  }

private:
  // Compares only the settings in which the jobs of one call of forecast() may differ.
  static bool areEqual(const Config &one, const Config &other) {
    return one.model == other.model && one.training == other.training &&
           one.optimizer == other.optimizer && one.memory == other.memory &&
           one.distributed == other.distributed && one.target == other.target;
  }

  std::mutex mutex;
  std::deque<std::pair<Config, std::shared_future<Outcome>>> jobs;
};

// Compiles jobs on one thread.
class Forecaster {
public:
  Forecaster(const CompileOptions &options, CompiledJobs &jobs) : options(options), jobs(jobs) {
    this->options.withCode = false;
    this->options.onlyMeasures = true;
    this->options.compileTo = Phase::Emit;
    this->options.dumpDirectory.clear();
    this->options.printIrAfter.clear();
    DialectRegistry registry;
    registerDialects(registry);
    context = std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
    context->printOpOnDiagnostic(false);
    context->getDiagEngine().registerHandler([this](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error && error.empty())
        error = diagnostic.str();
      return success();
    });
  }

  // Returns nullopt after an error and sets `error` to its text.
  std::optional<Forecast> operator()(const ForecastJob &job) {
    const MemoryConfig &memory = job.config.memory;
    if (!job.isQuick || job.config.training.microBatchAuto || memory.recomputeStride > 1 ||
        job.config.model.numHiddenLayers <= kLayers[0] + kLayers[1])
      return exact(job.config);
    const DistributedConfig &distributed = job.config.distributed;
    bool isSearch = memory.recompute == RecomputeMode::Auto ||
                    (memory.lossChunk == 0 && job.chunks.fastest) ||
                    (distributed.ranks() > 1 && distributed.overlap == "auto") ||
                    distributed.choosesReduce();
    auto with = [&](RecomputeMode mode, int64_t chunk, const char *overlap, const char *reduce,
                    const char *reshard) {
      Config config = job.config;
      if (distributed.choosesReduce())
        config.distributed.reduce = reduce;
      if (distributed.overlap == "auto")
        config.distributed.overlap = overlap;
      if (choosesKeptWeights(config))
        config.distributed.reshardAfterForward = reshard;
      if (memory.recompute == RecomputeMode::Auto)
        config.memory.recompute = mode;
      if (memory.lossChunk == 0)
        config.memory.lossChunk = chunk;
      return extrapolated(std::move(config));
    };
    const bool sumsEither =
        distributed.choosesReduce() && job.config.training.gradientAccumulationSteps > 1;
    auto fast = [&](const char *reshard) {
      auto of = [&](const char *reduce) {
        return with(RecomputeMode::KeepAll, job.chunks.fastest, "yes", reduce, reshard);
      };
      std::optional<Forecast> last = of("last");
      if (!last || !sumsEither)
        return last;
      std::optional<Forecast> each = of("each");
      return each && !isBetter(*each, *last) ? last : each;
    };
    auto smallest = [&] {
      return with(RecomputeMode::Block, job.chunks.smallest, "no", "each", "yes");
    };
    if (job.isLikelyTooLarge && isSearch)
      if (auto least = smallest(); !least || isClear(*least, /*fits=*/false))
        return least;
    std::optional<Forecast> fastest = fast("yes");
    if (fastest && choosesKeptWeights(job.config))
      if (auto kept = fast("no");
          !kept || isWorthKeeping(fastest->stepSeconds, kept->stepSeconds)) {
        fastest = kept;
        isSearch = true;
      }
    if (fastest && fastest->tokensPerSecond < (1 - kMargin) * job.leastRate) {
      fastest->isTooSlow = true;
      return fastest;
    }
    if (!fastest || isClear(*fastest, /*fits=*/true) ||
        (!isSearch && isClear(*fastest, /*fits=*/false)))
      return fastest;
    if (isSearch)
      if (auto least = smallest(); !least || isClear(*least, /*fits=*/false))
        return least;
    return exact(job.config);
  }

  std::string error;

private:
  static constexpr std::array<int64_t, 2> kLayers = {3, 6};
  // The maximum relative error of a quick forecast, in bytes and in tokens/s.
  static constexpr double kMargin = 0.02;

  // If `fits`, returns true if the job certainly fits; else, true if it certainly does not fit.
  static bool isClear(const Forecast &forecast, bool fits) {
    const double budget = double(forecast.budgetBytes), peak = double(forecast.peakBytes);
    return fits ? budget == 0 || peak < budget * (1 - kMargin)
                : budget > 0 && peak > budget * (1 + kMargin);
  }

  // Returns true if Driver::planFastest() would prefer plan `a` to plan `b`.
  static bool isBetter(const Forecast &a, const Forecast &b) {
    if (a.fits != b.fits)
      return a.fits;
    return a.tokensPerSecond > b.tokensPerSecond ||
           (a.tokensPerSecond == b.tokensPerSecond && a.peakBytes < b.peakBytes);
  }

  std::optional<Compiled> compiled(const Config &config) {
    auto [made, text] = jobs.get(simplest(config), [&]() -> CompiledJobs::Outcome {
      error.clear();
      FailureOr<CompileResult> result = compile(config, options, *context);
      if (failed(result))
        return {std::nullopt, error};
      const plan::Plan &plan = *plan::GetPlan(result->plan.data());
      Compiled made{forecastOf(plan, *result, config)};
      for (const plan::Arena *arena : *plan.arenas())
        made.lowerBoundBytes += arena->lower_bound_bytes();
      made.flopsPerToken = plan.model()->flops_per_token_causal();
      return {made, ""};
    });
    error = text;
    return made;
  }

  // Compiles the job. If distributed.reduce is "auto", tries both values, as compile() does.
  std::optional<Forecast> exact(const Config &config) {
    std::optional<Compiled> last;
    if (config.distributed.choosesReduce() && config.training.gradientAccumulationSteps > 1 &&
        !config.training.microBatchAuto && cost::deviceSpecOf(config.target, config.directory)) {
      last = compiled(withReduce(config, "last"));
      if (!last)
        return std::nullopt;
    }
    std::optional<Compiled> made = compiled(last ? withReduce(config, "each") : config);
    if (made && last && last->forecast.fits && !isBetter(made->forecast, last->forecast))
      return last->forecast;
    return made ? std::optional(made->forecast) : std::nullopt;
  }

  static Config withReduce(Config config, const char *reduce) {
    config.distributed.reduce = reduce;
    return config;
  }

  std::optional<Forecast> extrapolated(Config config) {
    const double wanted = double(config.model.numHiddenLayers);
    std::array<Forecast, 2> of;
    double flopsPerToken[2];
    for (size_t i = 0; i < of.size(); ++i) {
      config.model.numHiddenLayers = kLayers[i];
      const std::optional<Compiled> made = compiled(config);
      if (!made)
        return std::nullopt;
      of[i] = made->forecast;
      of[i].peakBytes = made->lowerBoundBytes;
      flopsPerToken[i] = made->flopsPerToken;
    }
    auto at = [&](double first, double second) {
      return second +
             (second - first) / double(kLayers[1] - kLayers[0]) * (wanted - double(kLayers[1]));
    };
    Forecast whole = of[1];
    whole.peakBytes = uint64_t(at(double(of[0].peakBytes), double(of[1].peakBytes)));
    whole.stepSeconds = at(of[0].stepSeconds, of[1].stepSeconds);
    whole.exposedSeconds = at(of[0].exposedSeconds, of[1].exposedSeconds);
    whole.fits = whole.budgetBytes == 0 || whole.peakBytes <= whole.budgetBytes;
    if (of[1].stepSeconds > 0) {
      const double faster = of[1].stepSeconds / whole.stepSeconds; // below 1
      whole.tokensPerSecond *= faster;
      whole.mfuCausal *= faster * at(flopsPerToken[0], flopsPerToken[1]) / flopsPerToken[1];
    }
    return whole;
  }

  CompileOptions options;
  CompiledJobs &jobs;
  std::unique_ptr<MLIRContext> context;
};

} // namespace

llvm::Expected<std::vector<Forecast>> lmc::forecast(ArrayRef<ForecastJob> jobs,
                                                    const CompileOptions &options) {
  std::vector<std::optional<Forecast>> made(jobs.size());
  std::vector<std::string> errors(jobs.size());
  std::atomic<size_t> next = 0;
  CompiledJobs compiled;
  auto work = [&] {
    Forecaster forecaster(options, compiled);
    for (size_t job; (job = next++) < jobs.size();) {
      forecaster.error.clear();
      made[job] = forecaster(jobs[job]);
      errors[job] = forecaster.error;
    }
  };
  const size_t most = std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(most, jobs.size()); ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  std::vector<Forecast> forecasts;
  for (auto [forecast, error] : llvm::zip_equal(made, errors)) {
    if (!forecast)
      return llvm::createStringError(error);
    forecasts.push_back(*forecast);
  }
  return forecasts;
}
