// What a graph adds up to, against figures that people can check by hand and against formulas of
// the model's sizes.
#include "models/decoder/Counts.h"

#include "compiler/driver/Registration.h"
#include "models/decoder/Model.h"
#include "test/ground/config/ShippedConfig.h"
#include "test/models/ClosedForms.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace mlir;
using namespace lmc;

namespace {

class CountsTest : public testing::Test {
protected:
  CountsTest() : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  ModelCounts count(const std::string &name, const std::vector<std::string> &overrides = {}) {
    config = shippedConfig(name, overrides);
    FailureOr<ModelCounts> counts = modelCounts(*buildModel(config, context));
    EXPECT_TRUE(succeeded(counts));
    return counts.value_or(ModelCounts());
  }

  MLIRContext context;
  Config config;
};

} // namespace

// 6 N + 12 L h s with N = 1,241,513,984 less its norms: 7.449 GF of products and 0.805 GF of
// attention, half of it visible.
TEST_F(CountsTest, FlopsOfLlama1b) {
  ModelCounts counts = count("llama1b.toml");
  EXPECT_EQ(config.training.sequenceLength, 2048);
  EXPECT_NEAR(counts.flopsPerTokenFull / 1e9, 8.254, 0.001);
  EXPECT_NEAR(counts.flopsPerTokenCausal / 1e9, 7.852, 0.001);
}

// Without its window Mistral's attention is 12.89 GF a token at 8192; with a window of 4096
// a query sees 3072 keys on average, which is 4.83 GF.
TEST_F(CountsTest, FlopsOfMistralAreThoseOfTheWindow) {
  ModelCounts counts = count("mistral-7b.toml");
  EXPECT_EQ(config.training.sequenceLength, 8192);
  EXPECT_NEAR((counts.flopsPerTokenFull - counts.flopsPerTokenCausal) / 1e9, 12.885 - 4.832, 0.01);
  counts = count("mistral-7b.toml", {"model.sliding_window=0"});
  EXPECT_NEAR(counts.flopsPerTokenFull / 1e9, 55.55, 0.02);
  EXPECT_NEAR(counts.flopsPerTokenCausal / 1e9, 49.11, 0.02);
}

// h = 2048, f = 8192, 40 heads of 64: 8h x 4 + 4 x 40 x 64 + 16f + 2f = 223,232 bytes a layer,
// 16 layers; with RoPE's own pass backward (4 x 40 x 64) and without the product made again (2f)
// 3.47 MB.
TEST_F(CountsTest, TrafficFloorOfLlama1b) {
  ModelCounts counts = count("llama1b.toml");
  EXPECT_EQ(counts.layerTrafficFloor, 16 * (65536 + 10240 + 131072 + 16384));
  EXPECT_NEAR(counts.layerTrafficFloor + 16 * (10240 - 2 * 8192), 3.47e6, 0.01e6);
  // Embedding 4h + 10h, a norm 4h + 6h, cross entropy 4V.
  EXPECT_EQ(counts.headTrafficFloor, 24 * 2048 + 4 * 131072);
}

// h = 4096, f = 14336, 40 heads of 128, 32 layers: 12.85 MB, 4 x 40 x 128 less and 2f more.
TEST_F(CountsTest, TrafficFloorOfMistral7b) {
  ModelCounts counts = count("mistral-7b.toml");
  EXPECT_EQ(counts.layerTrafficFloor, 32 * (131072 + 20480 + 229376 + 28672));
  EXPECT_NEAR(counts.layerTrafficFloor + 32 * (20480 - 2 * 14336), 12.85e6, 0.01e6);
  EXPECT_EQ(counts.headTrafficFloor, 24 * 4096 + 4 * 32000);
}

// Wider elements move as much more; main gradients are f32 either way.
TEST_F(CountsTest, TrafficFloorByDType) {
  ModelCounts bf16 = count("llama1b.toml"),
              f32 = count("llama1b.toml", {"training.compute_dtype=f32"});
  EXPECT_EQ(f32.layerTrafficFloor, 2 * bf16.layerTrafficFloor);
  EXPECT_EQ(f32.headTrafficFloor, 2 * bf16.headTrafficFloor - 8 * 2048);
}

// To the last bit, whatever the sizes.
TEST_F(CountsTest, SumsOverTheGraphAreTheClosedForms) {
  std::vector<std::pair<std::string, std::vector<std::string>>> models;
  for (const auto &entry : std::filesystem::directory_iterator(LMC_SOURCE_DIR "/models/configs/"))
    models.push_back({entry.path().filename(), {}});
  for (const char *dtype : {"f32", "bf16", "f64"})
    for (const char *more :
         {"model.tie_word_embeddings=false", "model.attention_bias=true", "model.mlp_bias=true",
          "model.head_dim=24", "model.num_key_value_heads=1", "training.document_mask=true",
          "model.sliding_window=7", "monitoring.logits=true", "training.sequence_length=31"})
      models.push_back({"test-tiny.toml", {std::string("training.compute_dtype=") + dtype, more}});
  models.push_back({"mistral-7b.toml", {"training.sequence_length=8191"}});
  models.push_back(
      {"mistral-7b.toml", {"training.sequence_length=7777", "model.sliding_window=1023"}});
  for (const char *more : {"model.decoder_sparse_step=1", "model.mlp_only_layers=[1]",
                           "model.norm_topk_prob=false", "model.num_experts_per_tok=1"})
    models.push_back({"test-qwen3-moe.toml", {more, "model.num_hidden_layers=4"}});
  for (const auto &[name, overrides] : models) {
    SCOPED_TRACE(testing::Message() << name << " " << testing::PrintToString(overrides));
    ModelCounts counts = count(name, overrides);
    EXPECT_EQ(counts.parameters, test::parameterCount(config.model));
    test::FlopsPerToken flops = test::flopsPerToken(config.model, config.training.sequenceLength);
    EXPECT_EQ(counts.flopsPerTokenCausal, flops.causal);
    EXPECT_EQ(counts.flopsPerTokenFull, flops.full);
    test::TrafficFloor floor = test::trafficFloor(config.model, config.training.computeDType);
    EXPECT_EQ(counts.layerTrafficFloor, floor.layers);
    EXPECT_EQ(counts.headTrafficFloor, floor.head);
  }
}

// A new op is no silent zero.
TEST_F(CountsTest, AnOpWithoutACountIsAnError) {
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(R"(
    lm.variable @x parameter : tensor<2x4xf32> init zeros
    func.func @forward() {
      %x = lm.load @x : tensor<2x4xf32>
      %y = lm.sum_rows %x : (tensor<2x4xf32>) -> tensor<4xf32>
      return
    })",
                                                             &context);
  ASSERT_TRUE(module);
  std::string message;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    message = diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(modelCounts(*module)));
  EXPECT_EQ(message, "'lm.sum_rows' op has no count of its operations and traffic");
}
