// A plan's cost is the sum of its commands, as often as a step runs them.
#include "compiler/cost/PlanCost.h"

#include "test/runtime/plan/PlanBuilder.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace lmc;
using namespace lmc::cost;

namespace {

// Functions of one command each: a GEMM, a kernel, a copy, attention, a scatter.
class Job : public test::PlanBuilder {
public:
  Job() {
    plan.compute_dtype = plan::DType::F32;
    plan.model->flops_per_token_causal = 1e6;
    plan.model->flops_per_token_full = 2e6;
    plan.batch->gradient_accumulation_steps = 5;
    uint32_t a = slice(plan::DType::F32, {64, 32}), b = slice(plan::DType::F32, {32, 16}),
             d = slice(plan::DType::F32, {64, 16});
    plan::GemmT gemm;
    gemm.a = a;
    gemm.b = b;
    gemm.d = d;
    gemm.m = 64;
    gemm.n = 16;
    gemm.k = 32;
    command(gemm);
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = "k";
    kernel->read_bytes = 3000;
    kernel->written_bytes = 1000;
    kernel->flops = 500;
    plan.kernels.push_back(std::move(kernel));
    for (const char *name : {"micro", "micro_last", "optimizer", "eval"}) {
      auto function = std::make_unique<plan::FunctionT>();
      function->name = name;
      auto entry = std::make_unique<plan::CommandT>();
      plan::LaunchT launch;
      launch.args = {a, d};
      launch.inputs = 1;
      launch.items = 64;
      launch.chunk = 64;
      entry->body.Set(std::move(launch));
      function->commands.push_back(std::move(entry));
      plan.functions.push_back(std::move(function));
    }
  }
};

} // namespace

TEST(PlanCost, AStepRunsEachFunctionItsTimes) {
  EXPECT_EQ(runsPerStep("micro_first", 1), 1u);
  EXPECT_EQ(runsPerStep("micro", 1), 0u);
  EXPECT_EQ(runsPerStep("micro_last", 1), 0u);
  EXPECT_EQ(runsPerStep("micro", 2), 0u);
  EXPECT_EQ(runsPerStep("micro_last", 2), 1u);
  EXPECT_EQ(runsPerStep("micro", 8), 6u);
  EXPECT_EQ(runsPerStep("optimizer", 8), 1u);
  EXPECT_EQ(runsPerStep("eval", 8), 0u);
}

TEST(PlanCost, StepAndUtilization) {
  Job job;
  std::string bytes = job.bytes();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  PlanCost cost = planCost(plan, spec);
  double gemm = estimate(GemmWork{64, 16, 32, DataType::F32, DataType::F32}, spec).seconds;
  double kernel = estimate(KernelWork{3000, 1000, 500}, spec).seconds;
  EXPECT_DOUBLE_EQ(cost.functions[0].seconds, gemm);
  EXPECT_DOUBLE_EQ(cost.functions[1].seconds, kernel);
  EXPECT_NEAR(cost.stepSeconds, gemm + 3 * kernel + kernel + kernel, 1e-12);
  EXPECT_EQ(cost.kernels[0].launches, 5u);
  EXPECT_NEAR(cost.kernels[0].seconds, 5 * kernel, 1e-12);
  // 2 sequences of 8 tokens, five times.
  EXPECT_NEAR(cost.tokensPerSecond, 80 / cost.stepSeconds, 1e-6 * cost.tokensPerSecond);
  EXPECT_EQ(cost.peakFlops, spec.peakOf(DataType::F32));
  EXPECT_NEAR(cost.mfuCausal, cost.tokensPerSecond * 1e6 / cost.peakFlops, 1e-12);
  EXPECT_NEAR(cost.mfuFull, 2 * cost.mfuCausal, 1e-12);
}

TEST(PlanCost, IsDeterministic) {
  Job job;
  std::string bytes = job.bytes();
  DeviceSpec spec = *loadDeviceSpec("cpu");
  PlanCost a = planCost(*plan::GetPlan(bytes.data()), spec);
  PlanCost b = planCost(*plan::GetPlan(bytes.data()), spec);
  EXPECT_EQ(a.stepSeconds, b.stepSeconds);
  EXPECT_EQ(a.mfuCausal, b.mfuCausal);
}

TEST(PlanCost, WorkOfACommand) {
  Job job;
  uint32_t ids = job.slice(plan::DType::I32, {4}), x = job.slice(plan::DType::BF16, {4, 8}),
           d = job.slice(plan::DType::F32, {10, 8});
  plan::ScatterAddT scatter;
  scatter.ids = ids;
  scatter.x = x;
  scatter.d = d;
  scatter.rows = 4;
  scatter.columns = 8;
  scatter.vocabulary = 10;
  job.command(scatter);
  plan::CopyT copy;
  copy.x = copy.d = d;
  job.command(copy);
  plan::AttentionGradT attention;
  attention.q = x;
  attention.batch = 2;
  attention.seq = 16;
  attention.heads = 4;
  attention.kv_heads = 2;
  attention.head_dim = 8;
  attention.window = 5;
  job.command(attention);
  std::string bytes = job.bytes();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  auto work = [&](unsigned function, unsigned command) {
    return workOf(plan, *plan.functions()->Get(function)->commands()->Get(command));
  };
  auto gemm = std::get<GemmWork>(work(0, 0));
  EXPECT_EQ(gemm.k, 32);
  EXPECT_EQ(gemm.input, DataType::F32);
  EXPECT_FALSE(gemm.accumulate);
  auto scattered = std::get<ScatterWork>(work(0, 1));
  EXPECT_EQ(scattered.inputWidth, 2);
  EXPECT_EQ(scattered.outputWidth, 4);
  EXPECT_EQ(std::get<KernelWork>(work(0, 2)).readBytes, 320);
  EXPECT_EQ(std::get<KernelWork>(work(0, 2)).writtenBytes, 320);
  auto grad = std::get<AttentionWork>(work(0, 3));
  EXPECT_TRUE(grad.backward);
  EXPECT_EQ(grad.window, 5);
  EXPECT_EQ(grad.dtype, DataType::BF16);
  EXPECT_EQ(std::get<KernelWork>(work(1, 0)).readBytes, 3000);
  EXPECT_EQ(std::get<KernelWork>(work(1, 0)).writtenBytes, 1000);
  EXPECT_EQ(std::get<KernelWork>(work(1, 0)).flops, 500);
}
