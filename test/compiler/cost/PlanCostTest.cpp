// A plan's cost is the sum of its commands, as often as a step runs them.
#include "compiler/cost/PlanCost.h"

#include "test/ground/plan/PlanBuilder.h"

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
    const plan::GemmT gemm = product(64, 16, 32);
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
      launch.args = {gemm.a, gemm.d};
      launch.inputs = 1;
      launch.items = 64;
      launch.chunk = 64;
      entry->body.Set(std::move(launch));
      function->commands.push_back(std::move(entry));
      plan.functions.push_back(std::move(function));
    }
  }

  // Adds an all-gather of 32 MiB over 8 ranks to the first function.
  void gather(uint16_t stream) {
    plan::CollectiveT body;
    body.axis = plan::Axis::Shard;
    body.x = slice(plan::DType::F32, {1 << 20});
    body.d = slice(plan::DType::F32, {8 << 20});
    command(body);
    plan.functions[0]->commands.back()->stream = stream;
  }
};

} // namespace

TEST(PlanCost, StepAndUtilization) {
  Job job;
  std::string bytes = job.bytes();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  PlanCost cost = planCost(plan, CostModel(spec));
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
  PlanCost a = planCost(*plan::GetPlan(bytes.data()), CostModel(spec));
  PlanCost b = planCost(*plan::GetPlan(bytes.data()), CostModel(spec));
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

namespace {

// Adds the products of experts, of a plan with 16 tokens in a micro-step that choose 2 of 4 experts
// each.
void addExperts(Job &job, bool accumulate) {
  plan::ExpertLinearT linear;
  linear.x = job.slice(plan::DType::BF16, {32, 64});
  linear.weight = job.slice(plan::DType::BF16, {4 * 24, 64});
  linear.offsets = job.slice(plan::DType::I32, {5});
  linear.y = job.slice(plan::DType::BF16, {32, 24});
  linear.rows = 32;
  linear.experts = 4;
  linear.inner = 64;
  linear.columns = 24;
  job.command(linear);
  plan::ExpertLinearGradT grad;
  grad.dy = linear.y;
  grad.x = linear.x;
  grad.offsets = linear.offsets;
  grad.d = job.slice(plan::DType::F32, {4 * 24, 64});
  grad.rows = 32;
  grad.experts = 4;
  grad.inner = 64;
  grad.columns = 24;
  grad.accumulate = accumulate;
  job.command(grad);
}

} // namespace

TEST(PlanCost, ProductsOfExpertsAreThoseOfBusyOnes) {
  for (const bool accumulate : {false, true}) {
    Job job;
    addExperts(job, accumulate);
    std::string bytes = job.bytes();
    const plan::Plan &plan = *plan::GetPlan(bytes.data());
    auto work = [&](unsigned command, Routing routing) {
      return std::get<GemmWork>(
          workOf(plan, *plan.functions()->Get(0)->commands()->Get(command), routing));
    };
    const GemmWork balanced = work(1, Routing::Balanced), same = work(1, Routing::SameExperts);
    EXPECT_EQ(std::tuple(balanced.batch, balanced.m, balanced.n, balanced.k),
              std::tuple(4, 8, 24, 64));
    EXPECT_TRUE(balanced.experts && balanced.uneven);
    EXPECT_EQ(std::tuple(same.batch, same.m, same.n, same.k), std::tuple(2, 16, 24, 64));
    EXPECT_TRUE(same.experts && !same.uneven) << "each of them has all tokens";
    const GemmWork grad = work(2, Routing::Balanced), sameGrad = work(2, Routing::SameExperts);
    EXPECT_EQ(std::tuple(grad.batch, grad.m, grad.n, grad.k, grad.zeros),
              std::tuple(4, 24, 64, 8, 0));
    EXPECT_EQ(std::tuple(sameGrad.batch, sameGrad.m, sameGrad.n, sameGrad.k, sameGrad.zeros),
              std::tuple(2, 24, 64, 16, accumulate ? 0 : 2));
    EXPECT_EQ(sameExperts(plan), 2);
    const std::string dense = Job().bytes();
    EXPECT_EQ(sameExperts(*plan::GetPlan(dense.data())), 0);
  }
}

// The weights of experts without rows are not read, and their gradients not added to.
TEST(PlanCost, ExpertsWithoutRowsTakeNoTraffic) {
  Job job;
  addExperts(job, /*accumulate=*/true);
  std::string bytes = job.bytes();
  const plan::Plan &plan = *plan::GetPlan(bytes.data());
  const CostModel model(*loadDeviceSpec("h100-sxm"));
  auto moved = [&](unsigned command, Routing routing) {
    return planCost(plan, model, routing).functions[0].commands[command].bytes;
  };
  const double matrix = 24 * 64;
  EXPECT_DOUBLE_EQ(moved(1, Routing::Balanced) - moved(1, Routing::SameExperts), 2 * 2 * matrix);
  EXPECT_DOUBLE_EQ(moved(2, Routing::Balanced) - moved(2, Routing::SameExperts), 2 * 8 * matrix);
}

// The rows of tokens are read in the order of experts: each for each of its choices, from memory if all
// of them together are more than a cache holds.
TEST(PlanCost, LargeRowsOfTokensAreReadForEachChoice) {
  constexpr uint64_t kChosen = 8, kColumns = 2048;
  for (const auto &[tokens, times] : {std::pair<uint64_t, uint64_t>(16384, kChosen), {4096, 1}}) {
    Job job;
    plan::TakeRowsT take;
    take.x = job.slice(plan::DType::BF16, {tokens, kColumns});
    take.rows = job.slice(plan::DType::I32, {tokens * kChosen});
    take.y = job.slice(plan::DType::BF16, {tokens * kChosen, kColumns});
    take.tokens = tokens;
    take.chosen = kChosen;
    take.columns = kColumns;
    job.command(take);
    plan::CombineRowsGradT grad;
    grad.dout = take.x;
    grad.y = grad.dy = take.y;
    grad.rows = take.rows;
    grad.places = int(take.rows);
    grad.weights = grad.dweights = job.slice(plan::DType::F32, {tokens, kChosen});
    grad.tokens = tokens;
    grad.chosen = kChosen;
    grad.columns = kColumns;
    job.command(grad);
    std::string bytes = job.bytes();
    const plan::Plan &plan = *plan::GetPlan(bytes.data());
    auto read = [&](unsigned command) {
      return std::get<KernelWork>(workOf(plan, *plan.functions()->Get(0)->commands()->Get(command),
                                         Routing::Balanced))
          .readBytes;
    };
    const double rows = double(tokens * kColumns * 2), choices = double(tokens * kChosen * 4);
    EXPECT_EQ(read(1), double(times) * rows + choices);
    EXPECT_EQ(read(2), double(times) * rows + double(kChosen) * rows + 3 * choices);
  }
}

// Four ranks divide 8 or 4 experts, of which each of their 64 tokens chooses 2. A rank's rows have
// room for all choices of its experts, of which it gets those of 16 tokens on average: 32.
TEST(PlanCost, RowsThatHaveAnExpertAreMoved) {
  for (const uint64_t own : {2, 1}) {
    constexpr uint64_t kTokens = 64, kChosen = 2, kColumns = 8;
    const uint64_t rows = kTokens * own, held = own == 2 ? 0 : rows;
    Job job;
    job.plan.expert_ranks = job.plan.shard_ranks = 4;
    job.plan.batch->micro_batch_size = 2;
    job.plan.batch->sequence_length = 8;
    auto matrix = [&](uint64_t count, uint64_t columns) {
      return job.slice(plan::DType::BF16, {count, columns});
    };
    plan::SortRowsT sort;
    sort.experts = job.slice(plan::DType::I32, {kTokens * kChosen});
    sort.offsets = job.slice(plan::DType::I32, {own + 1});
    sort.rows = job.slice(plan::DType::I32, {rows});
    sort.places = job.slice(plan::DType::I32, {kTokens * kChosen});
    sort.choices = kTokens * kChosen;
    sort.count = own;
    sort.held = held;
    job.command(sort);
    auto moved = [&](auto op) {
      op.tokens = kTokens;
      op.chosen = kChosen;
      op.columns = kColumns;
      op.held = held;
      return op;
    };
    auto take = moved(plan::TakeRowsT());
    take.x = matrix(kTokens, kColumns);
    take.rows = sort.rows;
    take.y = matrix(rows, kColumns);
    job.command(take);
    auto takeGrad = moved(plan::TakeRowsGradT());
    takeGrad.dy = take.y;
    takeGrad.places = sort.places;
    takeGrad.dx = take.x;
    job.command(takeGrad);
    auto combine = moved(plan::CombineRowsT());
    combine.y = take.y;
    combine.weights = job.slice(plan::DType::F32, {kTokens, kChosen});
    combine.places = sort.places;
    combine.out = take.x;
    job.command(combine);
    auto combineGrad = moved(plan::CombineRowsGradT());
    combineGrad.dout = take.x;
    combineGrad.y = take.y;
    combineGrad.weights = combine.weights;
    combineGrad.rows = sort.rows;
    combineGrad.places = int(sort.places);
    combineGrad.dy = matrix(rows, kColumns);
    combineGrad.dweights = job.slice(plan::DType::F32, {kTokens, kChosen});
    job.command(combineGrad);
    auto halved = [&](auto op) {
      op.rows = rows;
      op.experts = own;
      op.columns = kColumns;
      return op;
    };
    auto swiglu = halved(plan::ExpertSwigluT());
    swiglu.x = matrix(rows, 2 * kColumns);
    swiglu.offsets = sort.offsets;
    swiglu.y = take.y;
    job.command(swiglu);
    auto swigluGrad = halved(plan::ExpertSwigluGradT());
    swigluGrad.dy = take.y;
    swigluGrad.x = swiglu.x;
    swigluGrad.offsets = sort.offsets;
    swigluGrad.dx = matrix(rows, 2 * kColumns);
    job.command(swigluGrad);
    std::string bytes = job.bytes();
    const plan::Plan &plan = *plan::GetPlan(bytes.data());
    auto expectMoved = [&](unsigned command, uint64_t read, uint64_t written, Routing routing) {
      const auto work = std::get<KernelWork>(
          workOf(plan, *plan.functions()->Get(0)->commands()->Get(command), routing));
      EXPECT_EQ(work.readBytes, double(read)) << "command " << command;
      EXPECT_EQ(work.writtenBytes, double(written)) << "command " << command;
    };
    // With SameExperts, a rank's experts may be those that all tokens choose.
    for (const auto &[routing, full] :
         {std::pair(Routing::Balanced, uint64_t(32)), std::pair(Routing::SameExperts, rows)}) {
      const uint64_t x = kTokens * kColumns * 2, y = full * kColumns * 2; // bytes
      const uint64_t choices = kTokens * kChosen * 4, offsets = (own + 1) * 4;
      expectMoved(2, x + rows * 4, y, routing);
      expectMoved(3, y + choices, x, routing);
      expectMoved(4, y + 2 * choices, x, routing);
      expectMoved(5, x + y + rows * 4 + 2 * choices, y + choices, routing);
      expectMoved(6, 2 * y + offsets, y, routing);
      expectMoved(7, 3 * y + offsets, 2 * y, routing);
    }
  }
}

namespace {

// Warns of every product, and prices each kernel of attention's gradient by itself.
class Warning : public CostModel {
public:
  using CostModel::CostModel;
  std::vector<Estimate> attentionKernels(const AttentionWork &work) const override {
    return {{1, Bound::VectorUnits, 10, 100}, {3, Bound::MatrixUnits, 20, 300}};
  }
  std::string warning(const Work &work) const override {
    return std::holds_alternative<GemmWork>(work) ? "slow" : "";
  }
};

} // namespace

TEST(PlanCost, KernelsOfACommandHaveTheirOwnPrices) {
  Warning model(*loadDeviceSpec("h100-sxm"));
  Estimate sum = sumOf(model.kernels(AttentionWork{}));
  EXPECT_EQ(sum.seconds, 4);
  EXPECT_EQ(sum.flops, 30);
  EXPECT_EQ(sum.bytes, 400);
  EXPECT_EQ(sum.bound, Bound::MatrixUnits); // what the longest kernel waits for
  EXPECT_EQ(model.kernels(KernelWork{1, 2, 3}).size(), 1u);
}

// A command of two kernels, of which one moves 9 times as many bytes, and one estimate for both.
TEST(PlanCost, AKernelsShareOfACommandIsThatOfItsTraffic) {
  Job job;
  for (uint64_t bytes : {uint64_t(1) << 30, uint64_t(9) << 30}) {
    auto kernel = std::make_unique<plan::KernelT>();
    kernel->name = kernel->entry = "part";
    kernel->read_bytes = bytes;
    job.plan.kernels.push_back(std::move(kernel));
    auto launch = std::make_unique<plan::LaunchT>();
    launch->kernel = uint32_t(job.plan.kernels.size() - 1);
    launch->items = launch->chunk = 1;
    job.plan.functions[0]->commands[0]->launches.push_back(std::move(launch));
  }
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  spec.launchSeconds = 0;
  std::string bytes = job.bytes();
  PlanCost cost = planCost(*plan::GetPlan(bytes.data()), CostModel(spec));
  const Estimate &gemm = cost.functions[0].commands[0];
  EXPECT_NEAR(cost.kernels[1].launch.seconds, gemm.seconds / 10, 1e-9 * gemm.seconds);
  EXPECT_NEAR(cost.kernels[2].launch.seconds, gemm.seconds * 9 / 10, 1e-9 * gemm.seconds);
  EXPECT_NEAR(cost.kernels[2].launch.bytes, gemm.bytes * 9 / 10, 1e-9 * gemm.bytes);
}

// Two collectives run beside commands, one after the other. A wait takes what is left of them, and
// a collective of stream 0 waits for those before it.
TEST(PlanCost, CollectivesRunBesideCommands) {
  Job job;
  job.plan.nodes = 1;
  job.plan.devices_per_node = job.plan.shard_ranks = 8;
  auto wait = [&](uint32_t command) {
    plan::WaitT wait;
    wait.command = command;
    job.command(wait);
  };
  const plan::GemmT product = job.product(512, 512, 64);
  job.gather(1);        // 1
  job.gather(1);        // 2
  job.command(product); // 3
  wait(1);              // 4
  job.command(product); // 5
  wait(2);              // 6
  wait(2);              // 7: nothing is left
  job.gather(1);        // 8
  job.gather(0);        // 9
  const DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  const std::string bytes = job.bytes();
  const PlanCost cost = planCost(*plan::GetPlan(bytes.data()), CostModel(spec));
  const FunctionCost &function = cost.functions[0];
  const double before = function.commands[0].seconds, gemm = function.commands[3].seconds;
  const double gather = function.commands[1].seconds;
  ASSERT_GT(gemm, 0);
  ASSERT_GT(gather, 2 * gemm);
  EXPECT_NEAR(gather, allGatherSeconds(32 << 20, {8, 1}, spec), 1e-12);
  EXPECT_NEAR(function.commands[4].seconds, gather - gemm, 1e-12);
  EXPECT_NEAR(function.commands[6].seconds, gather - gemm, 1e-12);
  EXPECT_EQ(function.commands[7].seconds, 0);
  EXPECT_NEAR(function.commands[9].seconds, 2 * gather, 1e-12);
  EXPECT_NEAR(function.seconds, before + 4 * gather, 1e-12);
  ASSERT_EQ(function.collectives.size(), 4u);
  const double starts[] = {before, before + gather, before + 2 * gather, before + 3 * gather};
  const double exposed[] = {gather - gemm, gather - gemm, gather, gather};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(function.collectives[i].start, starts[i], 1e-12) << i;
    EXPECT_NEAR(function.collectives[i].end, starts[i] + gather, 1e-12) << i;
    EXPECT_NEAR(function.collectives[i].exposed, exposed[i], 1e-12) << i;
  }
  EXPECT_NEAR(cost.exposedSeconds, 4 * gather - 2 * gemm, 1e-12);
}

namespace {

// A product of 1 ms, then a gather of 8 ranks, then `count` products of 1 ms each, then a wait for
// the gather, on a spec where a gather takes 10 ms and a fifth of the processors.
FunctionCost besideAGather(int count, double processors = 0.2) {
  struct Millisecond : CostModel {
    using CostModel::CostModel;
    Estimate gemm(const GemmWork &) const override { return {1e-3, Bound::MatrixUnits, 0, 0}; }
  };
  Job job;
  job.plan.nodes = 1;
  job.plan.devices_per_node = job.plan.shard_ranks = 8;
  const plan::GemmT product = job.product(64, 16, 32);
  job.gather(1);
  for (int i = 0; i < count; ++i)
    job.command(product);
  plan::WaitT wait;
  wait.command = 1;
  job.command(wait);
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  spec.deviceLink = {.bandwidth = 7.0 / 8 * (32 << 20) / 10e-3, .processors = processors};
  const std::string bytes = job.bytes();
  return planCost(*plan::GetPlan(bytes.data()), Millisecond(spec)).functions[0];
}

} // namespace

// A gather of 10 ms leaves 0.8 of the speed to the products beside it: they take 1.25 ms each.
TEST(PlanCost, ACollectiveSlowsDownTheCommandsBesideIt) {
  const FunctionCost few = besideAGather(4);
  for (int command = 2; command < 6; ++command)
    EXPECT_NEAR(few.commands[size_t(command)].seconds, 1.25e-3, 1e-12) << command;
  EXPECT_NEAR(few.slowed, 4 * 0.25e-3, 1e-12);
  EXPECT_NEAR(few.commands[6].seconds, 5e-3, 1e-12); // the wait for the other half of the gather
  EXPECT_NEAR(few.seconds, 11e-3, 1e-12);            // 1 ms before it, and the gather
  EXPECT_NEAR(few.collectives[0].exposed, 5e-3, 1e-12);

  // The eighth product ends with the gather, and those after it are as fast as ever.
  const FunctionCost many = besideAGather(10);
  EXPECT_NEAR(many.commands[9].seconds, 1.25e-3, 1e-12);
  EXPECT_NEAR(many.commands[10].seconds, 1e-3, 1e-12);
  EXPECT_NEAR(many.slowed, 8 * 0.25e-3, 1e-12);
  EXPECT_EQ(many.commands[12].seconds, 0); // the wait
  EXPECT_NEAR(many.seconds, 13e-3, 1e-12);

  // With 0.25 of the processors taken, the gather ends within the eighth: 7 products of 4/3 ms,
  // then half a product in 2/3 ms at 0.75 of the speed, and the other half alone.
  const FunctionCost middle = besideAGather(8, 0.25);
  EXPECT_NEAR(middle.commands[8].seconds, 4e-3 / 3, 1e-12);
  EXPECT_NEAR(middle.commands[9].seconds, 2e-3 / 3 + 0.5e-3, 1e-12);
  EXPECT_NEAR(middle.slowed, 2.5e-3, 1e-12);

  // Nothing is slowed down where collectives take no processors, as in a spec that does not say.
  const FunctionCost none = besideAGather(4, 0);
  EXPECT_EQ(none.commands[2].seconds, 1e-3);
  EXPECT_EQ(none.slowed, 0);
}

// The prices of kernels are those of a kernel alone, and the step has what it loses.
TEST(PlanCost, KernelsArePricedAlone) {
  Job job;
  job.plan.nodes = 1;
  job.plan.devices_per_node = job.plan.shard_ranks = 8;
  job.gather(1);
  auto launch = [&] {
    auto entry = std::make_unique<plan::CommandT>();
    entry->body.Set(plan::LaunchT(*job.plan.functions[1]->commands[0]->body.AsLaunch()));
    job.plan.functions[0]->commands.push_back(std::move(entry));
  };
  launch();
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  spec.deviceLink.processors = 0.5;
  const std::string bytes = job.bytes();
  const PlanCost cost = planCost(*plan::GetPlan(bytes.data()), CostModel(spec));
  const double alone = estimate(KernelWork{3000, 1000, 500}, spec).seconds;
  EXPECT_NEAR(cost.functions[0].commands[2].seconds, 2 * alone, 1e-15);
  EXPECT_EQ(cost.kernels[0].launch.seconds, alone);
  EXPECT_NEAR(cost.slowedSeconds, alone * double(cost.functions[0].runsPerStep), 1e-15);
  EXPECT_GT(cost.slowedSeconds, 0);
}

// Collectives of two streams run at the same time, except that one waits for another.
TEST(PlanCost, CollectivesOfTwoStreams) {
  Job job;
  job.plan.nodes = 2;
  job.plan.devices_per_node = job.plan.shard_ranks = 8;
  auto sum = [&](int after) {
    plan::CollectiveT sum;
    sum.kind = plan::CollectiveKind::AllReduce;
    sum.axis = plan::Axis::Replicate;
    sum.x = sum.d = job.slice(plan::DType::F32, {1 << 20});
    sum.after = after;
    job.command(sum);
    job.plan.functions[0]->commands.back()->stream = 2;
  };
  plan::WaitT wait;
  wait.command = 3;
  job.gather(1);     // 1
  sum(1);            // 2: starts when 1 has ended
  sum(-1);           // 3: starts when 2 has ended
  job.gather(1);     // 4: starts when 1 has ended, beside 2
  job.command(wait); // 5: for 1, 2 and 3
  job.gather(0);     // 6: waits for 4 too
  const DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  const std::string bytes = job.bytes();
  const FunctionCost function =
      planCost(*plan::GetPlan(bytes.data()), CostModel(spec)).functions[0];
  const double before = function.commands[0].seconds;
  const double gathers = function.commands[1].seconds, sums = function.commands[2].seconds;
  ASSERT_GT(gathers, 0);
  ASSERT_GT(2 * sums, gathers);
  const double end = before + gathers + 2 * sums;
  EXPECT_NEAR(function.commands[5].seconds, gathers + 2 * sums, 1e-12);
  EXPECT_NEAR(function.seconds, end + gathers, 1e-12);
  ASSERT_EQ(function.collectives.size(), 5u);
  const double starts[] = {before, before + gathers, before + gathers + sums, before + gathers,
                           end};
  const double exposed[] = {gathers, sums, sums, 0, gathers};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(function.collectives[i].start, starts[i], 1e-12) << i;
    EXPECT_NEAR(function.collectives[i].exposed, exposed[i], 1e-12) << i;
  }
}

// Collectives along the two axes share the links that both use: together they take the sum of their
// times. 4 nodes of 2 devices: along `replicate`, ranks are always on different nodes.
TEST(PlanCost, CollectivesOfTwoStreamsShareLinks) {
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  spec.deviceLink = {.bandwidth = 8e9};
  spec.nodeLink = {.bandwidth = 1e9};
  auto ends = [&](uint32_t shardRanks) {
    Job job;
    job.plan.nodes = 4;
    job.plan.devices_per_node = 2;
    job.plan.shard_ranks = shardRanks;
    plan::CollectiveT gather;
    gather.axis = plan::Axis::Shard;
    gather.x = gather.d = job.slice(plan::DType::F32, {1'000'000}); // 4 MB
    job.command(gather);
    job.plan.functions[0]->commands.back()->stream = 1;
    plan::CollectiveT sum;
    sum.kind = plan::CollectiveKind::ReduceScatter;
    sum.axis = plan::Axis::Replicate;
    sum.x = sum.d = gather.x;
    job.command(sum);
    job.plan.functions[0]->commands.back()->stream = 2;
    const std::string bytes = job.bytes();
    const FunctionCost function =
        planCost(*plan::GetPlan(bytes.data()), CostModel(spec)).functions[0];
    const double start = function.commands[0].seconds;
    return std::vector<double>{function.collectives[0].end - start,
                               function.collectives[1].end - start};
  };
  // Two devices of a node: 1/2 of 4 MB at 8 GB/s. Four nodes: 3/4 of 4 MB at 1 GB/s, beside it.
  EXPECT_NEAR(ends(2)[0], 0.25e-3, 1e-12);
  EXPECT_NEAR(ends(2)[1], 3e-3, 1e-12);
  // Two nodes of two devices: 3/4 of 4 MB at 2 x 1 GB/s. Then two nodes: 1/2 of 4 MB at 1 GB/s.
  EXPECT_NEAR(ends(4)[0], 1.5e-3, 1e-12);
  EXPECT_NEAR(ends(4)[1], 3.5e-3, 1e-12);
}

// Rows of 16 bytes: which row of a product is no multiple of them, the pitch included.
TEST(PlanCost, RowsOfAProductThatAreNotAligned) {
  auto unalignedRow = [](std::vector<uint64_t> a, std::vector<uint64_t> d, uint64_t pitch = 0,
                         plan::DType dtype = plan::DType::BF16) {
    Job job;
    plan::GemmT gemm;
    gemm.a = job.slice(dtype, a);
    gemm.b = job.slice(dtype, {a[1], d[1]});
    gemm.d = job.slice(dtype, d);
    job.plan.slices[gemm.a]->pitch = pitch;
    job.command(gemm);
    std::string bytes = job.bytes();
    const plan::Plan &plan = *plan::GetPlan(bytes.data());
    return std::get<GemmWork>(workOf(plan, *plan.functions()->Get(0)->commands()->Get(1)))
        .unalignedRow;
  };
  EXPECT_EQ(unalignedRow({64, 32}, {64, 264}), 0);
  EXPECT_EQ(unalignedRow({64, 32}, {64, 257}), 257);
  EXPECT_EQ(unalignedRow({64, 36}, {64, 264}), 36);
  EXPECT_EQ(unalignedRow({64, 32}, {64, 264}, 96), 0);
  EXPECT_EQ(unalignedRow({64, 32}, {64, 264}, 74), 37);
  EXPECT_EQ(unalignedRow({64, 36}, {64, 264}, 0, plan::DType::F32), 0);
}

TEST(PlanCost, AWarningIsGivenOnceWithItsPlaces) {
  Job job;
  plan::GemmT gemm;
  gemm.a = gemm.b = gemm.d = 0;
  for (const char *source :
       {"layers.0/mlp", "layers.1/mlp", "layers.1/o_proj", "lm_head", "more"}) {
    job.command(gemm);
    job.plan.functions[0]->commands.back()->source = source;
  }
  job.plan.functions[0]->commands.front()->source = "layers.0/mlp";
  std::string bytes = job.bytes();
  DeviceSpec spec = *loadDeviceSpec("h100-sxm");
  EXPECT_EQ(warningsOf(*plan::GetPlan(bytes.data()), Warning(spec)),
            std::vector<std::string>{"slow (mlp, o_proj, lm_head and 1 more)"});
  EXPECT_TRUE(warningsOf(*plan::GetPlan(bytes.data()), CostModel(spec)).empty());
}
