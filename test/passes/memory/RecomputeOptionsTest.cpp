// The options of real models against figures that people can check by hand, and the choice
// among them.
#include "passes/memory/RecomputeOptions.h"
#include "compiler/driver/Registration.h"
#include "models/decoder/Model.h"
#include "passes/autodiff/Passes.h"
#include "test/ground/config/ShippedConfig.h"
#include "test/models/ClosedForms.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace lmc;

namespace {

class RecomputeOptionsTest : public testing::Test {
protected:
  RecomputeOptionsTest() : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  RecomputeOptions analyze(const std::string &name, std::vector<std::string> overrides = {}) {
    config = shippedConfig(name, overrides);
    module = buildModel(config, context);
    PassManager passes(&context);
    passes.addPass(createAutodiffPass());
    passes.addPass(createAccumulateGradientsPass(AccumulateGradientsPassOptions{int64_t(2)}));
    passes.addPass(createCSEPass());
    EXPECT_TRUE(succeeded(passes.run(*module)));
    FailureOr<RecomputeOptions> found =
        analyzeRecompute(*module, [](Operation *op) { return modelledSeconds(op); });
    EXPECT_TRUE(succeeded(found));
    return found.value_or(RecomputeOptions());
  }

  MLIRContext context;
  Config config;
  OwningOpRef<ModuleOp> module;
};

double mebibytes(double bytes) { return bytes / (1 << 20); }

} // namespace

// A token of a layer keeps, in bf16: q, k, v 4096 + 2 * 1024, attention's output and the sum
// after it 4096 each, gate and up 14336 each; and 32 statistics of softmax in f32. Over 8192
// tokens and 32 layers, with the 4096 of each layer's input, that is 23,584 MiB; without
// gate and up 9,248 MiB.
TEST_F(RecomputeOptionsTest, MistralKeepsWhatItMust) {
  RecomputeOptions options = analyze("fast-llm-mistral.toml");
  ASSERT_EQ(options.kinds.size(), 1u);
  ASSERT_EQ(options.layers.size(), 32u);
  const RecomputeKind &layer = options.kinds[0];
  double inputs = 32.0 * 8192 * 4096 * 2;
  auto kept = [&](StringRef name) {
    int64_t option = layer.find(name);
    EXPECT_GE(option, 0);
    return mebibytes(32.0 * double(layer.options[size_t(option)].keptBytes) + inputs);
  };
  EXPECT_EQ(kept("none"), 23584);
  EXPECT_EQ(kept("activation"), 23584);
  EXPECT_EQ(kept("full"), 9248);
  EXPECT_EQ(kept("block"), mebibytes(inputs));
  // Points of the hull follow each other: fewer bytes, more seconds.
  const size_t keeps = size_t(layer.find("keep1"));
  for (size_t i = std::size(kRecomputeModes) + 1; i < keeps; ++i) {
    EXPECT_LT(layer.options[i].keptBytes, layer.options[i - 1].keptBytes);
    EXPECT_GT(layer.options[i].seconds, layer.options[i - 1].seconds);
  }
  // With the norms (4096 each) and the MLP's activation (14336), nothing is computed again.
  EXPECT_EQ(kept("keep1"), 23584 + mebibytes(32.0 * 8192 * (2 * 4096 + 14336) * 2));
  EXPECT_EQ(layer.options[keeps].seconds, 0);
  EXPECT_TRUE(layer.options[keeps].ops.empty());
  for (size_t i = keeps + 1; i < layer.options.size(); ++i) {
    EXPECT_LT(layer.options[i].keptBytes, layer.options[i - 1].keptBytes);
    EXPECT_GT(layer.options[i].seconds, layer.options[i - 1].seconds);
    EXPECT_GT(layer.options[i].keptBytes, layer.options[0].keptBytes);
    EXPECT_LT(layer.options[i].seconds, layer.options[0].seconds);
  }
}

// Products and attention of all layers are the model's, less its head.
TEST_F(RecomputeOptionsTest, CountsTheFlopsOfTheModel) {
  for (const char *name : {"llama1b.toml", "mistral-7b.toml"}) {
    RecomputeOptions options = analyze(name);
    ASSERT_EQ(options.kinds.size(), 1u);
    double tokens = double(config.training.microBatchSize * config.training.sequenceLength);
    double head = 6.0 * double(config.model.hiddenSize) * double(config.model.vocabSize);
    double expected =
        test::flopsPerToken(config.model, config.training.sequenceLength).causal - head;
    double layers = 3 * options.kinds[0].forwardFlops * double(options.layers.size());
    EXPECT_NEAR(layers / tokens, expected, 1e-9 * expected) << name;
  }
}

TEST_F(RecomputeOptionsTest, AttributesHoldEverything) {
  RecomputeOptions options = analyze("llama1b.toml");
  writeRecomputeOptions(*module, options);
  FailureOr<RecomputeOptions> again = readRecomputeOptions(*module);
  ASSERT_TRUE(succeeded(again));
  EXPECT_EQ(again->layers, options.layers);
  ASSERT_EQ(again->kinds.size(), options.kinds.size());
  EXPECT_EQ(again->kinds[0].layer, options.kinds[0].layer);
  EXPECT_EQ(again->kinds[0].forwardFlops, options.kinds[0].forwardFlops);
  ASSERT_EQ(again->kinds[0].options.size(), options.kinds[0].options.size());
  for (size_t i = 0; i < options.kinds[0].options.size(); ++i) {
    const RecomputeOption &x = options.kinds[0].options[i], &y = again->kinds[0].options[i];
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.recomputed, y.recomputed);
    EXPECT_EQ(x.ops, y.ops);
    EXPECT_EQ(x.keptBytes, y.keptBytes);
    EXPECT_EQ(x.seconds, y.seconds);
    EXPECT_EQ(x.flops, y.flops);
  }

  FailureOr<std::optional<std::vector<int64_t>>> choice = readRecomputeChoice(*module);
  ASSERT_TRUE(succeeded(choice));
  EXPECT_FALSE(choice->has_value());
  std::vector<int64_t> some(options.layers.size(), 2);
  writeRecomputeChoice(*module, some);
  choice = readRecomputeChoice(*module);
  ASSERT_TRUE(succeeded(choice));
  EXPECT_EQ(**choice, some);
}
