// memory.loss_chunk = "auto": the chunk that a budget gets is the one that compiling every chunk
// would find.
#include "compiler/search/LossChunk.h"

#include "compiler/analysis/Fusion.h"
#include "compiler/cost/PlanCost.h"
#include "compiler/driver/Compile.h"
#include "compiler/driver/Registration.h"
#include "compiler/kernels/Target.h"
#include "compiler/report/Explain.h"
#include "models/decoder/Model.h"
#include "test/ground/config/ShippedConfig.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lmc;
using namespace mlir;
using testing::ElementsAre;

namespace {

struct Planned {
  uint64_t peakBytes = 0;
  double seconds = 0; // predicted, of a step
  int64_t chunk = 0;  // as the report says
  bool fits = false;
  uint64_t smallestBudget = 0;
  nlohmann::json report;
};

class LossChunkTest : public testing::Test {
protected:
  LossChunkTest() : context(registry()) {}

  // A model with a large head: 4 x 512 tokens, 32768 words.
  static Config job(std::vector<std::string> settings) {
    for (const char *always : {"model.vocab_size=32768", "training.sequence_length=512",
                               "training.batch_size=8", "training.micro_batch_size=4",
                               "training.compute_dtype=bf16", "target.device=cuda:sm_90a"})
      settings.insert(settings.begin(), always);
    return shippedConfig("test-tiny.toml", settings);
  }

  OwningOpRef<ModuleOp> model(std::vector<std::string> settings) {
    return buildModel(job(std::move(settings)), context);
  }

  Planned plan(std::vector<std::string> settings) {
    CompileOptions options;
    options.withCode = false;
    FailureOr<CompileResult> result = lmc::compile(job(std::move(settings)), options, context);
    EXPECT_TRUE(succeeded(result));
    if (failed(result))
      return {};
    const plan::Plan &plan = *plan::GetPlan(result->plan.data());
    const cost::DeviceSpec spec = *cost::loadDeviceSpec("h100-sxm");
    Planned planned{plannedBytes(*result->module), 0, 0, result->fits, result->smallestBudget,
                    explainJson(plan, spec)};
    planned.seconds = planned.report["cost"]["step_seconds"];
    planned.chunk = planned.report["loss_chunk"]["tokens"];
    EXPECT_EQ(cost::settingOf(plan, "memory.loss_chunk"), std::to_string(planned.chunk));
    return planned;
  }

  static std::string chunkIs(int64_t tokens) {
    return "memory.loss_chunk=" + std::to_string(tokens);
  }
  static std::string budgetIs(uint64_t bytes) { return "memory.budget=" + std::to_string(bytes); }

  MLIRContext context;

private:
  static DialectRegistry registry() {
    DialectRegistry registry;
    registerDialects(registry);
    return registry;
  }
};

} // namespace

TEST_F(LossChunkTest, CandidatesArePowersOfTwoAndAllTokens) {
  EXPECT_THAT(lossChunkSizes(*model({})), ElementsAre(256, 512, 1024, 2048));
  EXPECT_THAT(lossChunkSizes(*model({"training.sequence_length=300"})),
              ElementsAre(256, 512, 1024, 1200));
  EXPECT_THAT(lossChunkSizes(*model({"training.sequence_length=64"})), ElementsAre(256));
  EXPECT_THAT(lossChunkSizes(*model({"training.sequence_length=16"})), ElementsAre(64));
  // The model's own chunk has 256 MiB of logits, and the largest has 4 GiB.
  EXPECT_THAT(lossChunkSizes(*model({"model.vocab_size=150000"})),
              ElementsAre(256, 512, 832, 1024, 2048));
  EXPECT_THAT(lossChunkSizes(*model({"model.vocab_size=1200000"})),
              ElementsAre(64, 256, 512, 1024));
  // No more than 128 chunks.
  EXPECT_THAT(lossChunkSizes(*model({"training.sequence_length=32768"})),
              ElementsAre(1024, 2048, 4096, 8192, 16384, 32768, 65536));
}

TEST_F(LossChunkTest, TheJobsChunkIsTaken) {
  EXPECT_EQ(lossChunkOf(*model({"memory.loss_chunk=100"})).tokens, 100);
  EXPECT_EQ(lossChunkOf(*model({"memory.loss_chunk=100"})).logitsBytes, 100 * 32768 * 2u);
  EXPECT_EQ(lossChunkOf(*model({"memory.loss_chunk=1000000"})).tokens, 2048) << "all tokens";
  EXPECT_EQ(plan({"memory.loss_chunk=100"}).chunk, 100);
  EXPECT_TRUE(plan({"memory.loss_chunk=100"}).report["loss_chunk"]["candidates"].empty());
}

// For every budget at which something changes: with the mode that the job names the plan is the
// fastest of the plans of single chunks that fit, and with "auto" it is at least as fast as any.
TEST_F(LossChunkTest, ABudgetGetsTheFastestChunkThatFits) {
  constexpr double kRounding = 1e-9;
  std::vector<Planned> single;
  for (int64_t chunk : lossChunkSizes(*model({})))
    single.push_back(plan({chunkIs(chunk)}));
  uint64_t least = UINT64_MAX;
  for (const Planned &planned : single)
    least = std::min(least, planned.peakBytes);
  std::vector<uint64_t> budgets;
  for (const Planned &planned : single) {
    budgets.push_back(planned.peakBytes);
    budgets.push_back(planned.peakBytes - 1);
  }
  std::set<int64_t> taken;
  for (uint64_t budget : budgets) {
    const Planned *best = nullptr;
    for (const Planned &planned : single)
      if (planned.peakBytes <= budget && (!best || planned.seconds < best->seconds))
        best = &planned;
    const Planned found = plan({budgetIs(budget)});
    if (!best) {
      EXPECT_FALSE(found.fits);
      EXPECT_EQ(found.smallestBudget, least);
      continue;
    }
    EXPECT_EQ(found.chunk, best->chunk) << budget;
    EXPECT_EQ(found.peakBytes, best->peakBytes);
    EXPECT_EQ(found.seconds, best->seconds);
    EXPECT_EQ(found.report["recompute"]["mode"], "none");
    taken.insert(found.chunk);
    if (budget != best->peakBytes)
      continue;
    const Planned any = plan({budgetIs(budget), "memory.recompute=auto"});
    EXPECT_TRUE(any.fits);
    EXPECT_LE(any.peakBytes, budget);
    EXPECT_LE(any.seconds, best->seconds * (1 + kRounding));
  }
  EXPECT_GE(taken.size(), 3u) << "budgets in between are used";
}

// A chunk and a choice for the layers are judged together: no chunk by itself gives a faster plan.
TEST_F(LossChunkTest, ChunkAndRecomputeAreChosenTogether) {
  constexpr double kRounding = 1e-9;
  const std::vector<std::string> larger = {"model.num_hidden_layers=4", "memory.recompute=auto",
                                           "model.vocab_size=8192"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), larger.begin(), larger.end());
    return plan(more);
  };
  const uint64_t least = with({budgetIs(1 << 20)}).smallestBudget;
  const uint64_t most = with({}).peakBytes;
  ASSERT_LT(least, most);
  for (int step = 0; step <= 2; ++step) {
    const uint64_t budget = least + (most - least) / 3 * uint64_t(step);
    const Planned found = with({budgetIs(budget)});
    ASSERT_TRUE(found.fits) << budget;
    EXPECT_LE(found.peakBytes, budget);
    double best = INFINITY;
    for (const nlohmann::json &candidate : found.report["loss_chunk"]["candidates"])
      if (const Planned one = with({budgetIs(budget), chunkIs(candidate["tokens"])}); one.fits)
        best = std::min(best, one.seconds);
    EXPECT_LE(found.seconds, best * (1 + kRounding)) << budget;
  }
}

// Reports say what a token costs outside of layers, and what the head's gradient moves.
TEST_F(LossChunkTest, TheReportGivesTheTrafficOfTheHeadsGradient) {
  const Planned planned = plan({});
  const nlohmann::json &candidates = planned.report["loss_chunk"]["candidates"];
  ASSERT_EQ(candidates.size(), 4u);
  double before = INFINITY;
  for (const nlohmann::json &candidate : candidates) {
    EXPECT_LT(candidate["seconds_per_token"], before) << "larger chunks are faster on an H100";
    before = candidate["seconds_per_token"];
  }
  EXPECT_EQ(planned.chunk, 2048);
  // f32 [32768, 64], read and written for each chunk.
  for (int64_t chunk : {512, 2048})
    EXPECT_EQ(plan({chunkIs(chunk)}).report["fusion"]["gradient_head_bytes_per_token"],
              2.0 * 4 * 32768 * 64 / double(chunk));
  const nlohmann::json &fusion = planned.report["fusion"];
  EXPECT_EQ(fusion["gradient_bytes_per_token"], fusion["floor_gradient_bytes_per_token"])
      << "in one chunk every gradient is the result of one product";
}
