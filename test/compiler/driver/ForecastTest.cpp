// Forecasts of jobs that the caller needs only if they are fast enough.
#include "compiler/driver/Forecast.h"

#include "compiler/driver/Registration.h"
#include "test/ground/config/ShippedConfig.h"

#include <gtest/gtest.h>

using namespace lmc;

// A job of 8 devices that fits its budget only with recompute: its plan is found by a search, and
// the plan that recomputes nothing, which is taken as the fastest, does not fit.
static ForecastJob tightJob() {
  ForecastJob job{
      shippedConfig("llama1b.toml", {"distributed.nodes=1", "distributed.devices_per_node=8",
                                     "distributed.strategy=zero1", "target.device=cuda:sm_90a",
                                     "memory.recompute=auto", "memory.budget=40GiB"}),
      /*isQuick=*/true,
      /*chunks=*/{.fastest = 4096, .smallest = 256}};
  return job;
}

static Forecast forecastOf(const ForecastJob &job) {
  auto made = forecast(job, CompileOptions());
  EXPECT_TRUE(bool(made));
  return made ? made->front() : Forecast();
}

// A forecast that looked for a plan says that there is one. Below the least rate it does not: only
// short models of the fastest plan were compiled.
TEST(Forecast, LooksForNoPlanOfAJobThatIsTooSlow) {
  registerTargets();
  ForecastJob job = tightJob();
  const Forecast found = forecastOf(job);
  EXPECT_TRUE(found.fits);
  EXPECT_FALSE(found.isTooSlow);
  EXPECT_LE(found.peakBytes, found.budgetBytes);

  job.leastRate = 2 * found.tokensPerSecond;
  const Forecast tooSlow = forecastOf(job);
  EXPECT_TRUE(tooSlow.isTooSlow);
  EXPECT_FALSE(tooSlow.fits) << "the fastest plan is without recompute";
  EXPECT_GT(tooSlow.peakBytes, tooSlow.budgetBytes);
  EXPECT_GE(tooSlow.tokensPerSecond, found.tokensPerSecond) << "no plan is faster";
  EXPECT_LT(tooSlow.tokensPerSecond, job.leastRate);

  // A rate that the fastest plan has, and the job has not, is decided by the job's own plan.
  ASSERT_LT(found.tokensPerSecond * 1.01, tooSlow.tokensPerSecond);
  job.leastRate = tooSlow.tokensPerSecond;
  const Forecast between = forecastOf(job);
  EXPECT_FALSE(between.isTooSlow);
  EXPECT_TRUE(between.fits);
  EXPECT_EQ(between.tokensPerSecond, found.tokensPerSecond);
  EXPECT_EQ(between.peakBytes, found.peakBytes);
}

TEST(Forecast, StateThatFewerRanksDivideIsLikelyTooLarge) {
  plan::PlanT made;
  made.memory_budget = uint64_t(10) << 30;
  made.arenas.push_back(std::make_unique<plan::ArenaT>());
  made.arenas.back()->bytes = uint64_t(4) << 30;
  made.model = std::make_unique<plan::ModelInfoT>();
  made.batch = std::make_unique<plan::BatchInfoT>();
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::CreatePlan(builder, &made));
  const plan::Plan &plan = *plan::GetPlan(builder.GetBufferPointer());
  auto ranks = [](int64_t devices) {
    return shippedConfig("llama1b.toml",
                         {"distributed.nodes=1", "distributed.strategy=zero1",
                          "distributed.devices_per_node=" + std::to_string(devices)});
  };
  EXPECT_FALSE(isLikelyTooLarge(ranks(8), ranks(8), plan));
  EXPECT_FALSE(isLikelyTooLarge(ranks(4), ranks(8), plan)) << "8 GiB of 10";
  EXPECT_TRUE(isLikelyTooLarge(ranks(2), ranks(8), plan)) << "16 GiB of 10";
}
