// models/configs/*.toml: each loads, opens with its source, and has the number of
// parameters that its shape gives by hand.

#include "ground/config/Config.h"
#include "test/ground/config/ShippedConfig.h"
#include "test/models/ClosedForms.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>

namespace lmc {
namespace {

const std::string kFolder = LMC_SOURCE_DIR "/models/configs/";

// Embedding (and head), then per layer: two norms; q and o; k and v; gate, up and
// down; then the last norm. Published totals where there are any.
const std::map<std::string, uint64_t> kParameters = {
    {"demo.toml", 256 * 192 + 6 * (2 * 192 + 2 * 192 * 192 + 2 * 192 * 64 + 3 * 192 * 512) + 192},
    {"llama-124m.toml",
     50304 * 768 + 12 * (2 * 768 + 2 * 768 * 768 + 2 * 768 * 768 + 3 * 768 * 2048) + 768},
    {"llama1b.toml", 1'241'581'568},
    {"llama2-7b.toml", 6'738'415'616},
    {"fms-llama2-7b.toml", 6'738'415'616},
    {"llama3-8b.toml", 8'030'261'248},
    {"mistral-7b.toml", 7'241'732'096},
    {"fast-llm-mistral.toml", 7'241'732'096},
    {"qwen2.5-0.5b.toml", 494'032'768},
    {"qwen2.5-1.5b.toml", 1'543'714'304},
    {"qwen2.5-7b.toml", 7'615'616'512},
    {"qwen3-0.6b.toml", 596'049'920},
    {"qwen3-8b.toml", 8'190'735'360},
    {"olmo2-1b.toml", 1'484'916'736},
    {"olmo2-7b.toml", 7'298'617'344},
    {"gpt2-124m.toml", 124'439'808},
    {"olmoe-1b-7b.toml", 6'919'161'856},
    {"qwen3-30b-a3b.toml", 30'532'122'624},
    {"mixtral-8x7b.toml", 46'702'792'704},
    {"demo-moe.toml",
     256 * 128 + 4 * (2 * 128 + 4 * 128 * 128 + 2 * 128 + 8 * 128 + 8 * 3 * 128 * 192) + 128},
    {"test-gpt2.toml", 128 * 64 + 48 * 64 + 2 * (12 * 64 * 64 + 13 * 64) + 2 * 64},
    {"test-tiny.toml", 128 * 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176) + 64},
    // A router and four experts in the place of gate, up and down.
    {"test-mixtral.toml",
     2 * 128 * 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 4 * 64 + 4 * 3 * 64 * 96) + 64},
    // A dense layer and one with a router and eight experts, and the norms of heads.
    {"test-qwen3-moe.toml", 2 * 128 * 64 + 2 * (2 * 64 + 2 * 64 * 96 + 2 * 64 * 48 + 2 * 24) +
                                3 * 64 * 176 + 8 * 64 + 8 * 3 * 64 * 48 + 64},
    // Two layers with a router and eight experts, and the norms of rows of q and k.
    {"test-olmoe.toml",
     2 * 128 * 64 + 2 * (2 * 64 + 4 * 64 * 64 + 2 * 64 + 8 * 64 + 8 * 3 * 64 * 32) + 64},
    {"test-mistral.toml",
     2 * 128 * 64 + 2 * (2 * 64 + 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 176) + 64},
};

TEST(ShippedConfigs, EveryOneLoadsAndIsCounted) {
  size_t files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename();
    ++files;
    const Config config = shippedConfig(name);
    ASSERT_TRUE(kParameters.count(name)) << name << " has no parameter count in this test";
    EXPECT_EQ(test::parameterCount(config.model), kParameters.at(name)) << name;
    EXPECT_EQ(config.text.rfind("# ", 0), 0u) << name << " must open with its source";
    if (config.training.computeDType == DataType::BF16)
      EXPECT_TRUE(config.target.device.starts_with("cuda:"))
          << name << " is made for GPUs and must name one in target.device";
  }
  EXPECT_EQ(files, kParameters.size());
}

TEST(ShippedConfigs, BiasesAreCounted) {
  ModelConfig model = shippedConfig("test-tiny.toml").model;
  const uint64_t without = test::parameterCount(model);
  model.attentionBias = true; // q 64, k 32, v 32, o 64
  EXPECT_EQ(test::parameterCount(model), without + 2 * 192);
  model.mlpBias = true; // gate 176, up 176, down 64
  EXPECT_EQ(test::parameterCount(model), without + 2 * 192 + 2 * 416);
}

TEST(ShippedConfigs, Llama1bIsTheDiarys) {
  const Config config = shippedConfig("llama1b.toml");
  EXPECT_EQ(config.training.sequenceLength * config.training.batchSize, 1 << 20);
  EXPECT_EQ(config.training.gradientAccumulationSteps, 8); // on one device
  EXPECT_EQ(config.training.computeDType, DataType::BF16);
  EXPECT_EQ(config.model.initializer, "fan_in");
}

TEST(ShippedConfigs, FmsRecipe) {
  const Config config = shippedConfig("fms-llama2-7b.toml");
  EXPECT_EQ(config.distributed.strategy, ShardingStrategy::HybridShard);
  EXPECT_EQ(config.training.sequenceLength * config.training.batchSize, 1 << 20);
  EXPECT_EQ(config.training.microBatchSize, 2);
  EXPECT_EQ(config.training.gradientAccumulationSteps, 1);
  EXPECT_EQ(config.lrSchedule.lr, 3e-4);
  EXPECT_EQ(config.lrSchedule.minLr, 3e-5);
}

TEST(ShippedConfigs, FastLlmRecipe) {
  const Config config = shippedConfig("fast-llm-mistral.toml");
  EXPECT_EQ(config.distributed.nodes * config.distributed.devicesPerNode, 128);
  EXPECT_EQ(config.training.microBatchSize * config.training.gradientAccumulationSteps, 1);
  EXPECT_EQ(config.training.trainIters, 500000);
  EXPECT_EQ(config.lrSchedule.minLr, 3e-6);
  EXPECT_EQ(config.checkpoint.exportInterval, 25000);
  EXPECT_EQ(config.monitoring.validationIters, 25);
}

} // namespace
} // namespace lmc
