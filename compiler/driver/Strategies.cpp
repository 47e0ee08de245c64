#include "compiler/driver/Strategies.h"

#include "llvm/Support/FormatVariadic.h"

#include <nlohmann/json.hpp>

#include <cmath>

using namespace lmc;
using nlohmann::json;

llvm::StringRef lmc::strategyName(ShardingStrategy strategy) {
  static constexpr llvm::StringLiteral names[] = {"no_shard", "zero1",        "zero2",
                                                  "zero3",    "hybrid_shard", "hybrid_shard_zero2"};
  return names[size_t(strategy)];
}

std::vector<ShardingStrategy> lmc::strategiesFor(int64_t nodes, int64_t devicesPerNode) {
  using enum ShardingStrategy;
  if (nodes * devicesPerNode == 1)
    return {NoShard};
  if (nodes == 1 || devicesPerNode == 1)
    return {NoShard, Zero1, Zero2, Zero3};
  return {NoShard, Zero1, Zero2, Zero3, HybridShard, HybridShardZero2};
}

Config lmc::withRanks(Config job, int64_t nodes, int64_t devicesPerNode,
                      ShardingStrategy strategy) {
  DistributedConfig &distributed = job.distributed;
  distributed.nodes = nodes;
  distributed.devicesPerNode = devicesPerNode;
  if (strategy != distributed.strategy ||
      (distributed.shardGroup > 0 && distributed.ranks() % distributed.shardGroup != 0))
    distributed.shardGroup = DistributedConfig::kAutoGroup;
  distributed.strategy = strategy;
  TrainingConfig &training = job.training;
  if (training.microBatchAuto)
    training.microBatchSize = 1; // a value to round batchSize; the compiler chooses the final one
  const int64_t together = training.microBatchSize * distributed.ranks();
  training.batchSize = (training.batchSize + together - 1) / together * together;
  training.gradientAccumulationSteps = training.batchSize / together;
  return job;
}

std::optional<std::string> lmc::strategyWarning(const Config &config, const plan::Plan &plan,
                                                const Forecast &own,
                                                const CompileOptions &options) {
  constexpr double kWorth = 1.25; // minimum (tokens/s of the other strategy) / (own tokens/s)
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
  if (!others) { // an error of these jobs is ignored: the user's job compiles
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

// The number of devices per node for jobs that do not state it: that of a DGX or HGX board.
static constexpr int64_t kUsualNode = 8;

// Returns the number of steps, tokens, days and device-hours of the whole job.
static json totalsOf(const Config &job, const Forecast &row) {
  const double steps = double(job.training.trainIters), seconds = steps * row.stepSeconds;
  return {{"steps", job.training.trainIters},
          {"tokens", steps * double(job.training.batchSize) * double(job.training.sequenceLength)},
          {"days", seconds / 86400},
          {"device_hours", seconds / 3600 * double(job.distributed.ranks())}};
}

static json rowOf(const ForecastJob &job, const Forecast &row, const Config &own) {
  const DistributedConfig &distributed = job.config.distributed;
  return {{"devices", distributed.ranks()},
          {"nodes", distributed.nodes},
          {"strategy", strategyName(distributed.strategy).str()},
          {"exact", !job.isQuick},
          {"batch_size", job.config.training.batchSize},
          {"configured_batch_size", own.training.batchSize},
          {"fits", row.fits},
          {"peak_bytes", row.peakBytes},
          {"missing_bytes", row.fits ? 0 : row.peakBytes - row.budgetBytes},
          {"step_seconds", row.stepSeconds},
          {"tokens_per_second_per_device", row.tokensPerSecond},
          {"mfu_causal", row.mfuCausal},
          {"exposed_seconds", row.exposedSeconds},
          {"best", false}};
}

llvm::Expected<json> lmc::scaleReport(const Config &config, const plan::Plan &plan,
                                      llvm::ArrayRef<int64_t> devices,
                                      const CompileOptions &options) {
  const int64_t node = config.distributed.ranks() == 1 ? kUsualNode
                                                       : config.distributed.devicesPerNode;
  const KnownChunks chunks = knownChunks(plan);
  std::vector<ForecastJob> jobs;
  for (int64_t count : devices) {
    if (count > node && count % node != 0)
      return llvm::createStringError("%lld devices are no whole number of nodes of %lld; give a "
                                     "multiple, or --devices-per-node",
                                     (long long)count, (long long)node);
    const int64_t perNode = std::min(count, node), nodes = count / perNode;
    for (ShardingStrategy strategy : strategiesFor(nodes, perNode)) {
      const bool isOwn = strategy == config.distributed.strategy ||
                         (count == 1 && config.distributed.ranks() == 1);
      ForecastJob &job =
          jobs.emplace_back(withRanks(config, nodes, perNode, strategy), !isOwn, chunks);
      job.isLikelyTooLarge = isLikelyTooLarge(job.config, config, plan);
    }
  }
  auto forecasts = forecast(jobs, options);
  if (!forecasts)
    return forecasts.takeError();
  json rows = json::array();
  for (size_t first = 0, end = 0; first < jobs.size(); first = end) {
    size_t best = jobs.size(); // index of the fastest row for this number of devices
    for (end = first; end < jobs.size() && jobs[end].config.distributed.ranks() ==
                                               jobs[first].config.distributed.ranks();
         ++end) {
      const Forecast &row = (*forecasts)[end];
      rows.push_back(rowOf(jobs[end], row, config));
      if (row.fits && (best == jobs.size() ||
                       row.tokensPerSecond > (*forecasts)[best].tokensPerSecond))
        best = end;
    }
    if (best < jobs.size()) {
      rows[best]["best"] = true;
      rows[best]["job"] = totalsOf(jobs[best].config, (*forecasts)[best]);
    }
  }
  return rows;
}
