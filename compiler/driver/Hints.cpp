#include "compiler/driver/Hints.h"

#include "compiler/cost/DeviceSpec.h"
#include "compiler/driver/Strategies.h"
#include "ground/plan/PlannedBytes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace lmc;
using nlohmann::json;

namespace {

// A change that a hint may propose. Of each kind (such as smaller micro-batches), the hints show
// the first change that makes the job fit; if none does, the one with the smallest plan.
struct Change {
  enum Kind { Optimizer, Recompute, MicroBatch, Strategy, Devices } kind;
  std::string text; // the keys of the TOML file and their values
  Config config;    // the job with the change
};

} // namespace

// Returns the job `config` with the settings of `plan`, its smallest plan.
static Config smallestOf(Config config, const plan::Plan &plan) {
  if (config.memory.recompute == RecomputeMode::Auto)
    config.memory.recompute = RecomputeMode::Block;
  if (config.memory.lossChunk == 0)
    config.memory.lossChunk = knownChunks(plan).smallest;
  if (config.distributed.overlap == "auto")
    config.distributed.overlap = "no";
  if (config.distributed.reshardAfterForward == "auto")
    config.distributed.reshardAfterForward = "yes";
  if (config.distributed.choosesReduce())
    config.distributed.reduce = "each";
  if (config.training.microBatchAuto) {
    config.training.microBatchAuto = false;
    setMicroBatchSize(config, int64_t(plan.batch()->micro_batch_size()));
  }
  return config;
}

// Returns all changes to the job `smallest` that hints may propose. `mode` is the recompute mode
// that the user chose.
static std::vector<Change> changesOf(const Config &smallest, RecomputeMode mode) {
  using enum ShardingStrategy;
  std::vector<Change> changes;
  auto add = [&](Change::Kind kind, std::string text) -> Config & {
    return changes.emplace_back(kind, std::move(text), smallest).config;
  };
  if (smallest.optimizer.type == "adamw" && smallest.training.computeDType != DataType::F64)
    add(Change::Optimizer, "optimizer.type = \"adamw8bit\"").optimizer.type = "adamw8bit";

  const bool isBlock = mode == RecomputeMode::Block && smallest.memory.recomputeStride == 1;
  if (mode != RecomputeMode::Auto && !isBlock) {
    MemoryConfig &memory = add(Change::Recompute, "memory.recompute = \"auto\"").memory;
    memory.recompute = RecomputeMode::Block;
    memory.recomputeStride = 1;
  }

  // Only sizes that divide the MBS are proposed, because they leave the GBS unchanged.
  const int64_t mbs = smallest.training.microBatchSize;
  for (int64_t size = mbs / 2; size >= 1; --size)
    if (mbs % size == 0)
      setMicroBatchSize(
          add(Change::MicroBatch, llvm::formatv("training.micro_batch_size = {0}", size)), size);

  // Strategies that send fewer bytes come first.
  const DistributedConfig &own = smallest.distributed;
  const std::vector<ShardingStrategy> known = strategiesFor(own.nodes, own.devicesPerNode);
  for (ShardingStrategy strategy : {Zero1, HybridShardZero2, Zero2, HybridShard, Zero3})
    if (strategy != own.strategy && llvm::is_contained(known, strategy))
      add(Change::Strategy,
          llvm::formatv("distributed.strategy = \"{0}\"", strategyName(strategy))) =
          withRanks(smallest, own.nodes, own.devicesPerNode, strategy);

  // Doubles the number of devices, up to 32 times as many: first those of a node, up to 8 of them,
  // and then the number of nodes.
  constexpr int64_t kLargestNode = 8, kMaxTimes = 32;
  auto spec = cost::deviceSpecOf(smallest.target, smallest.directory);
  if (!spec || own.strategy == NoShard)
    return changes;
  int64_t nodes = own.nodes, perNode = own.devicesPerNode;
  for (int64_t times = 2; times <= kMaxTimes; times *= 2) {
    (nodes == 1 && perNode < kLargestNode ? perNode : nodes) *= 2;
    if (spec->deviceLink.bandwidth == 0 || (nodes > 1 && spec->nodeLink.bandwidth == 0))
      break;
    Config config = withRanks(smallest, nodes, perNode, own.strategy);
    std::string text = llvm::formatv(
        "distributed.nodes = {0} and distributed.devices_per_node = {1}", nodes, perNode);
    if (config.training.batchSize != smallest.training.batchSize)
      text += llvm::formatv(" and training.batch_size = {0}", config.training.batchSize).str();
    add(Change::Devices, std::move(text)) = std::move(config);
  }
  return changes;
}

// Returns `smallest` with several changes: the last change of each kind except Devices.
static Change together(const Config &smallest, llvm::ArrayRef<Change> changes) {
  Change all{Change::Kind(), "", smallest};
  auto take = [&](Change::Kind kind, auto &&change) {
    const Change *last = nullptr;
    for (const Change &each : changes)
      if (each.kind == kind)
        last = &each;
    if (!last)
      return;
    all.text += (all.text.empty() ? "" : " and ") + last->text;
    change(last->config);
  };
  take(Change::Optimizer, [&](const Config &c) { all.config.optimizer = c.optimizer; });
  take(Change::Recompute, [&](const Config &c) { all.config.memory = c.memory; });
  take(Change::MicroBatch, [&](const Config &c) { all.config.training = c.training; });
  if (all.config.distributed.strategy != ShardingStrategy::Zero3)
    take(Change::Strategy, [&](const Config &c) { all.config.distributed = c.distributed; });
  return all;
}

static json entryOf(const std::string &text, const Forecast &forecast, uint64_t needed) {
  return {{"change", text},
          {"peak_bytes", forecast.peakBytes},
          {"saved_bytes", needed - forecast.peakBytes},
          {"suffices", forecast.fits}};
}

json lmc::hintsFor(const Config &config, const plan::Plan &plan, uint64_t budget,
                   const CompileOptions &options) {
  constexpr double kHelps = 0.99; // a change must reduce the bytes to this fraction or less
  const uint64_t needed = plannedBytes(plan);
  const Config smallest = smallestOf(config, plan);
  const std::vector<Change> changes = changesOf(smallest, config.memory.recompute);
  auto forecasts = [&](llvm::ArrayRef<Change> list) -> std::vector<Forecast> {
    std::vector<ForecastJob> jobs;
    for (const Change &change : list)
      jobs.push_back({change.config, /*isQuick=*/true, {}});
    auto made = forecast(jobs, options);
    if (made)
      return std::move(*made);
    llvm::consumeError(made.takeError());
    return {};
  };
  const std::vector<Forecast> made = forecasts(changes);
  std::vector<json> hints;
  bool isEnough = false;
  for (size_t i = 0, shown = 0; i < made.size(); i = shown) {
    std::optional<size_t> best;
    for (; shown < made.size() && changes[shown].kind == changes[i].kind; ++shown) {
      const bool helps = double(made[shown].peakBytes) < kHelps * double(needed);
      if (helps && (!best || (!made[*best].fits &&
                              made[shown].peakBytes < made[*best].peakBytes)))
        best = shown;
    }
    if (!best)
      continue;
    hints.push_back(entryOf(changes[*best].text, made[*best], needed));
    isEnough |= made[*best].fits;
  }
  std::stable_sort(hints.begin(), hints.end(), [](const json &a, const json &b) {
    return a["saved_bytes"] > b["saved_bytes"];
  });
  if (hints.size() > 1 && !isEnough) {
    const Change all = together(smallest, changes);
    if (const std::vector<Forecast> one = forecasts(all); !one.empty() && one[0].fits)
      hints.push_back(entryOf(all.text, one[0], needed));
  }
  return hints;
}
