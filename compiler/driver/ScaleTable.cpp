#include "compiler/driver/ScaleTable.h"

#include "compiler/driver/Strategies.h"

#include <nlohmann/json.hpp>

using namespace lmc;
using nlohmann::json;

// The number of devices per node for jobs that do not state it: that of a DGX or HGX board.
static constexpr int64_t kUsualNode = 8;

// Adds the totals of the whole job to its fastest row: the optimizer steps are the job's, the GBS
// is the row's.
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
