// FLOPs per token against figures that people can check by hand.
#include "models/Model.h"

#include <gtest/gtest.h>

using namespace lmc;

static ModelConfig load(const std::string &name, int64_t &sequenceLength) {
  Config config;
  ConfigError error;
  EXPECT_TRUE(loadConfig(LMC_SOURCE_DIR "/models/configs/" + name, {}, config, error))
      << error.message;
  sequenceLength = config.training.sequenceLength;
  return config.model;
}

// 6 N_mm + 12 L h s with N_mm = 1,241,513,984 - norms: 7.449 GF of products and 0.805 GF of
// attention, half of it visible.
TEST(Flops, Llama1b) {
  int64_t seq = 0;
  ModelConfig model = load("llama1b.toml", seq);
  FlopsPerToken flops = modelFlopsPerToken(model, seq);
  EXPECT_EQ(seq, 2048);
  EXPECT_NEAR(flops.full / 1e9, 8.254, 0.001);
  EXPECT_NEAR(flops.causal / 1e9, 7.852, 0.001);
}

// Without its window Mistral's attention is 12.89 GF a token at 8192; with a window of 4096
// a query sees 3072 keys on average, which is 4.83 GF.
TEST(Flops, MistralCountsTheWindow) {
  int64_t seq = 0;
  ModelConfig model = load("mistral-7b.toml", seq);
  EXPECT_EQ(seq, 8192);
  FlopsPerToken flops = modelFlopsPerToken(model, seq);
  EXPECT_NEAR((flops.full - flops.causal) / 1e9, 12.885 - 4.832, 0.01);
  model.slidingWindow = 0;
  flops = modelFlopsPerToken(model, seq);
  EXPECT_NEAR(flops.full / 1e9, 55.55, 0.02);
  EXPECT_NEAR(flops.causal / 1e9, 49.11, 0.02);
}
