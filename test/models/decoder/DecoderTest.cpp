// What a description of a decoder can say beyond Llama and Mistral: the graph verifies, and every
// parameter gets a gradient.
#include "compiler/driver/Registration.h"
#include "dialects/lm/Lm.h"
#include "models/decoder/Counts.h"
#include "models/decoder/Model.h"
#include "passes/autodiff/Passes.h"
#include "test/compiler/driver/PlanOf.h"
#include "test/ground/config/ShippedConfig.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace lmc;
using testing::Contains;
using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Not;

namespace {

class DecoderTest : public testing::Test {
protected:
  DecoderTest() : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    config = shippedConfig("test-tiny.toml");
    decoder = config.model.family->decoder(config.model);
  }

  // The graph, which must verify, be counted, and give every parameter a gradient of its shape; and
  // the whole compile must take it.
  void build() {
    module = buildModel(config, decoder, context);
    ASSERT_TRUE(succeeded(verify(*module)));
    FailureOr<ModelCounts> sums = modelCounts(*module);
    ASSERT_TRUE(succeeded(sums));
    counts = *sums;
    OwningOpRef<ModuleOp> differentiated = module->clone();
    PassManager passes(&context);
    passes.addPass(createAutodiffPass());
    ASSERT_TRUE(succeeded(passes.run(*differentiated)));
    for (auto parameter : module->getOps<lm::VariableOp>()) {
      if (parameter.getKind() != lm::VariableKind::Parameter)
        continue;
      std::string name = (parameter.getSymName() + ".grad").str();
      auto gradient = differentiated->lookupSymbol<lm::VariableOp>(name);
      ASSERT_TRUE(gradient) << name;
      EXPECT_EQ(cast<ShapedType>(gradient.getType()).getShape(),
                cast<ShapedType>(parameter.getType()).getShape());
    }
    OwningOpRef<ModuleOp> compiled = module->clone();
    EXPECT_TRUE(succeeded(planOf(*compiled, Phase::Autodiff, config)));
  }

  // Of a layer, without `model.layers.N.`, in the order of the graph.
  std::vector<std::string> parameters(int layer = 0) {
    std::vector<std::string> names;
    std::string prefix = "model.layers." + std::to_string(layer) + ".";
    for (auto variable : module->getOps<lm::VariableOp>())
      if (variable.getKind() == lm::VariableKind::Parameter &&
          variable.getSymName().starts_with(prefix))
        names.push_back(variable.getSymName().drop_front(prefix.size()).str());
    return names;
  }

  // Returns the group of each parameter whose name contains `part`; "" for none.
  std::vector<std::string> groupsOf(StringRef part) {
    std::vector<std::string> groups;
    for (auto variable : module->getOps<lm::VariableOp>())
      if (variable.getKind() == lm::VariableKind::Parameter && variable.getSymName().contains(part))
        groups.push_back(variable.getGroup() ? variable.getGroup()->getName().str() : "");
    return groups;
  }

  template <typename Op> size_t count(StringRef function = "layer") {
    auto ops = module->lookupSymbol<func::FuncOp>(function).getOps<Op>();
    return size_t(std::distance(ops.begin(), ops.end()));
  }

  MLIRContext context;
  Config config;
  Decoder decoder;
  OwningOpRef<ModuleOp> module;
  ModelCounts counts;
};

TEST_F(DecoderTest, ParametersHaveTheirGroup) {
  config.optimizer.groups["slow"] = {.name = "slow",
                                     .parameters = {"*.1.*norm.weight", "*.embed_*"},
                                     .weightDecay = 0,
                                     .ownDecay = true};
  config.optimizer.groups["exact"] = {
      .name = "exact", .parameters = {"*.down_proj.weight"}, .optimBits = 32};
  build();
  EXPECT_THAT(groupsOf("input_layernorm"), ElementsAre("", "slow"));
  EXPECT_THAT(groupsOf("down_proj"), ElementsAre("exact", "exact"));
  EXPECT_THAT(groupsOf("embed_tokens"), ElementsAre("slow"));
  auto norm = module->lookupSymbol<lm::VariableOp>("model.layers.1.input_layernorm.weight");
  EXPECT_TRUE(norm.getWeightDecay()) << "the group gives one";
  EXPECT_FALSE(norm.getGroup()->getF32Moments());
  EXPECT_TRUE(module->lookupSymbol<lm::VariableOp>("model.layers.0.mlp.down_proj.weight")
                  .getGroup()
                  ->getF32Moments());
  EXPECT_FALSE(module->lookupSymbol<lm::VariableOp>("model.norm.weight").getWeightDecay());
  const std::vector<std::string> names = parameterNames(config);
  EXPECT_THAT(names, IsSupersetOf({"model.embed_tokens.weight", "model.norm.weight",
                                   "model.layers.1.mlp.down_proj.weight"}));
  EXPECT_THAT(names, Not(Contains("rope.cos")));
}

} // namespace

TEST_F(DecoderTest, NormsBeforeAttentionAndMlp) {
  build();
  EXPECT_THAT(parameters(),
              ElementsAre("input_layernorm.weight", "self_attn.q_proj.weight",
                          "self_attn.k_proj.weight", "self_attn.v_proj.weight",
                          "self_attn.o_proj.weight", "post_attention_layernorm.weight",
                          "mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"));
  EXPECT_EQ(count<lm::RmsNormOp>(), 2u);
}

TEST_F(DecoderTest, NormsBehind) {
  decoder.kinds[0].attention = {"", "post_attention_layernorm"};
  decoder.kinds[0].mlp = {"", "post_feedforward_layernorm"};
  build();
  EXPECT_THAT(parameters(), IsSupersetOf({"post_attention_layernorm.weight",
                                          "post_feedforward_layernorm.weight"}));
  EXPECT_THAT(parameters(), Not(Contains("input_layernorm.weight")));
  for (auto add : module->lookupSymbol<func::FuncOp>("layer").getOps<lm::AddOp>())
    EXPECT_TRUE(add.getRhs().getDefiningOp<lm::RmsNormOp>());
  for (auto linear : module->lookupSymbol<func::FuncOp>("layer").getOps<lm::LinearOp>())
    EXPECT_FALSE(linear.getX().getDefiningOp<lm::RmsNormOp>());
}

TEST_F(DecoderTest, NormsBeforeAndBehind) {
  decoder.kinds[0].attention = {"input_layernorm", "post_attention_layernorm"};
  decoder.kinds[0].mlp = {"pre_feedforward_layernorm", "post_feedforward_layernorm"};
  build();
  EXPECT_EQ(count<lm::RmsNormOp>(), 4u);
}

TEST_F(DecoderTest, NormOfWholeRowsOfQAndK) {
  build();
  uint64_t without = counts.parameters;
  decoder.kinds[0].headNorm = HeadNorm::WholeRow;
  build();
  const ModelConfig &model = config.model;
  EXPECT_EQ(counts.parameters,
            without + uint64_t(model.numHiddenLayers *
                               (model.numAttentionHeads + model.numKeyValueHeads) * model.headDim));
  for (auto rope : module->lookupSymbol<func::FuncOp>("layer").getOps<lm::RopeOp>())
    EXPECT_TRUE(rope.getX().getDefiningOp<lm::RmsNormOp>());
}

TEST_F(DecoderTest, NormOfHeadsOfQAndK) {
  build();
  uint64_t without = counts.parameters;
  decoder.kinds[0].headNorm = HeadNorm::PerHead;
  build();
  const ModelConfig &model = config.model;
  EXPECT_EQ(counts.parameters, without + uint64_t(model.numHiddenLayers * 2 * model.headDim));
  EXPECT_THAT(parameters(), IsSupersetOf({"self_attn.q_norm.weight", "self_attn.k_norm.weight"}));
  for (auto rope : module->lookupSymbol<func::FuncOp>("layer").getOps<lm::RopeOp>()) {
    auto norm = rope.getX().getDefiningOp<lm::RmsNormOp>();
    ASSERT_TRUE(norm);
    EXPECT_EQ(cast<ShapedType>(norm.getWeight().getType()).getDimSize(0), model.headDim);
  }
}

TEST_F(DecoderTest, BiasesOfSomeProjections) {
  DecoderLayer &layer = decoder.kinds[0];
  for (Projection *projection : {&layer.q, &layer.k, &layer.v})
    projection->bias = true;
  build();
  EXPECT_THAT(parameters(), IsSupersetOf({"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                                          "self_attn.v_proj.bias"}));
  EXPECT_THAT(parameters(), Not(Contains("self_attn.o_proj.bias")));
  EXPECT_THAT(parameters(), Not(Contains("mlp.up_proj.bias")));
}

TEST_F(DecoderTest, Gpt2) {
  config = shippedConfig("test-gpt2.toml");
  decoder = config.model.family->decoder(config.model);
  build();
  auto shapeOf = [&](StringRef name) {
    return cast<ShapedType>(module->lookupSymbol<lm::VariableOp>(name).getType()).getShape().vec();
  };
  EXPECT_THAT(shapeOf("transformer.wpe.weight"), ElementsAre(48, 64));
  EXPECT_THAT(shapeOf("transformer.h.1.attn.c_attn.weight"), ElementsAre(64, 192));
  EXPECT_THAT(shapeOf("transformer.h.1.mlp.c_proj.weight"), ElementsAre(256, 64));
  EXPECT_EQ(count<lm::LayerNormOp>(), 2u);
  EXPECT_EQ(count<lm::GeluOp>(), 1u);
  EXPECT_EQ(count<lm::LinearOp>(), 4u);
  EXPECT_EQ(count<lm::RopeOp>(), 0u);
  EXPECT_FALSE(module->lookupSymbol("rope.cos"));
  EXPECT_TRUE(module->lookupSymbol("batch.row_positions"));
}

// Layers of a kind share a function.
TEST_F(DecoderTest, KindsOfLayersInAPattern) {
  config.model.numHiddenLayers = 4;
  DecoderLayer full = decoder.kinds[0], window = full;
  full.name = "full_layer";
  window.name = "window_layer";
  window.window = 5;
  full.q.bias = true;
  decoder = {.kinds = {window, full}, .pattern = {0, 0, 1, 0}};
  build();
  std::vector<std::string> called;
  for (auto call : module->lookupSymbol<func::FuncOp>("forward").getOps<func::CallOp>())
    called.push_back(call.getCallee().str());
  EXPECT_THAT(called, ElementsAre("window_layer", "window_layer", "full_layer", "window_layer"));
  auto windowOf = [&](StringRef function) {
    return (*module->lookupSymbol<func::FuncOp>(function).getOps<lm::AttentionOp>().begin())
        .getWindow();
  };
  EXPECT_EQ(windowOf("window_layer"), 5);
  EXPECT_EQ(windowOf("full_layer"), 0);
  EXPECT_THAT(parameters(2), Contains("self_attn.q_proj.bias"));
  EXPECT_THAT(parameters(3), Not(Contains("self_attn.q_proj.bias")));
}
