// Quick forecasts save time in two ways.
//
// * The plan is measured on models with 3 and 6 layers, and a layer more adds what the difference
//   of the two says. The bytes of the workspace are its lower bound, which grows evenly with the
//   layers; packing adds less than 0.4% (compiler/algorithms/PackingSearch.h).
// * Keys that are "auto" (memory.recompute, memory.loss_chunk, distributed.overlap,
//   distributed.reduce_gradients and distributed.reshard_after_forward) are not searched where the
//   plan that recomputes nothing, has the fastest known chunk and the most overlap, sums gradients
//   in the last micro-step, and keeps weights if that saves time, fits: it is taken as the fastest.
//   Where even the plan that recomputes whole layers, has the smallest chunk and no overlap, sums
//   gradients in each micro-step and keeps no weights does not fit, no plan does.
//
// All other jobs are compiled: those in between, those within 2% of the budget, and those with few
// layers.
#include "compiler/driver/Forecast.h"

#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Registration.h"
#include "compiler/kernels/Target.h"
#include "compiler/search/RecomputeSearch.h"

#include "llvm/ADT/STLExtras.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <atomic>
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
  for (const plan::Arena *arena : *plan.arenas())
    forecast.peakBytes += arena->bytes();
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

namespace {

// Compiles jobs on one thread.
class Forecaster {
public:
  explicit Forecaster(const CompileOptions &options) : options(options) {
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

  // Returns nullopt after an error; its text is then in `error`.
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
    auto fast = [&](const char *reshard) {
      return with(RecomputeMode::None, job.chunks.fastest, "yes", "last", reshard);
    };
    std::optional<Forecast> fastest = fast("yes");
    if (fastest && choosesKeptWeights(job.config))
      if (auto kept = fast("no");
          !kept || isWorthKeeping(fastest->stepSeconds, kept->stepSeconds)) {
        fastest = kept;
        isSearch = true;
      }
    if (!fastest || isClear(*fastest, /*fits=*/true) ||
        (!isSearch && isClear(*fastest, /*fits=*/false)))
      return fastest;
    if (isSearch) {
      std::optional<Forecast> smallest =
          with(RecomputeMode::Block, job.chunks.smallest, "no", "each", "yes");
      if (!smallest || isClear(*smallest, /*fits=*/false))
        return smallest;
    }
    return exact(job.config);
  }

  std::string error;

private:
  static constexpr std::array<int64_t, 2> kLayers = {3, 6};

  // Returns true if it is certain that the job fits, or that it does not.
  static bool isClear(const Forecast &forecast, bool fits) {
    constexpr double kMargin = 0.02;
    const double budget = double(forecast.budgetBytes), peak = double(forecast.peakBytes);
    return fits ? budget == 0 || peak < budget * (1 - kMargin)
                : budget > 0 && peak > budget * (1 + kMargin);
  }

  FailureOr<CompileResult> compiled(const Config &config) {
    return compile(config, options, *context);
  }

  std::optional<Forecast> exact(const Config &config) {
    FailureOr<CompileResult> result = compiled(config);
    if (failed(result))
      return std::nullopt;
    return forecastOf(*plan::GetPlan(result->plan.data()), *result, config);
  }

  std::optional<Forecast> extrapolated(Config config) {
    const double wanted = double(config.model.numHiddenLayers);
    std::array<Forecast, 2> of;
    double flopsPerToken[2];
    for (size_t i = 0; i < of.size(); ++i) {
      config.model.numHiddenLayers = kLayers[i];
      FailureOr<CompileResult> result = compiled(config);
      if (failed(result))
        return std::nullopt;
      const plan::Plan &plan = *plan::GetPlan(result->plan.data());
      of[i] = forecastOf(plan, *result, config);
      of[i].peakBytes = 0;
      for (const plan::Arena *arena : *plan.arenas())
        of[i].peakBytes += arena->lower_bound_bytes();
      flopsPerToken[i] = plan.model()->flops_per_token_causal();
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
  std::unique_ptr<MLIRContext> context;
};

} // namespace

llvm::Expected<std::vector<Forecast>> lmc::forecast(ArrayRef<ForecastJob> jobs,
                                                    const CompileOptions &options) {
  std::vector<std::optional<Forecast>> made(jobs.size());
  std::vector<std::string> errors(jobs.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    Forecaster forecaster(options);
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
