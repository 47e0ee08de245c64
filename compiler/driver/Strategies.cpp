#include "compiler/driver/Strategies.h"

using namespace lmc;

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
    training.microBatchSize = 1; // the compiler chooses one
  const int64_t together = training.microBatchSize * distributed.ranks();
  training.batchSize = (training.batchSize + together - 1) / together * together;
  training.gradientAccumulationSteps = training.batchSize / together;
  return job;
}
