#include "compiler/driver/StrategyWarning.h"

#include "compiler/driver/Strategies.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace lmc;

std::optional<std::string> lmc::strategyWarning(const Config &config, const plan::Plan &plan,
                                                const Forecast &own,
                                                const CompileOptions &options) {
  constexpr double kWorth = 1.25; // factor between the speeds
  const DistributedConfig &distributed = config.distributed;
  if (!own.fits || own.exposedSeconds < (1 - 1 / kWorth) * own.stepSeconds)
    return std::nullopt;
  std::vector<ForecastJob> jobs;
  for (ShardingStrategy strategy : strategiesFor(distributed.nodes, distributed.devicesPerNode))
    if (strategy != distributed.strategy) {
      ForecastJob &job = jobs.emplace_back(
          withRanks(config, distributed.nodes, distributed.devicesPerNode, strategy),
          /*isQuick=*/true, knownChunks(plan));
      job.isLikelyTooLarge = isLikelyTooLarge(job.config, config, plan);
      job.leastRate = kWorth * own.tokensPerSecond;
    }
  auto others = forecast(jobs, options);
  if (!others) { // ignores the error: the job itself compiles
    llvm::consumeError(others.takeError());
    return std::nullopt;
  }
  std::optional<size_t> best;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const double speed = (*others)[i].tokensPerSecond;
    if (!(*others)[i].isTooSlow && (*others)[i].fits && speed >= kWorth * own.tokensPerSecond &&
        (!best || speed > (*others)[*best].tokensPerSecond))
      best = i;
  }
  if (!best)
    return std::nullopt;
  const double speed = (*others)[*best].tokensPerSecond;
  return llvm::formatv(
      "distributed.strategy = \"{0}\" lets a device wait for other ranks in {1:P0} of a step and "
      "gives {2:N} tokens/s per device; \"{3}\" also fits and gives {4:N}, {5:F1} times as many "
      "(predicted; a larger training.micro_batch_size waits less per token)",
      strategyName(distributed.strategy), own.exposedSeconds / own.stepSeconds,
      std::llround(own.tokensPerSecond), strategyName(jobs[*best].config.distributed.strategy),
      std::llround(speed), speed / own.tokensPerSecond);
}
