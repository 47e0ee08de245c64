#include "compiler/cost/PlanCost.h"

#include "runtime/plan/Names.h"
#include "runtime/plan/Operands.h"
#include "runtime/plan/PlanFile.h"

#include <algorithm>

namespace lmc::cost {

DataType dataType(plan::DType dtype) {
  return dtype == plan::DType::F64    ? DataType::F64
         : dtype == plan::DType::BF16 ? DataType::BF16
                                      : DataType::F32;
}

namespace {

// Each operator() returns the work of one kind of command.
class WorkOf {
public:
  explicit WorkOf(const plan::Plan &plan) : plan(plan) {}

  Work operator()(const plan::Launch &op) const {
    const plan::Kernel &kernel = *plan.kernels()->Get(op.kernel());
    return KernelWork{double(kernel.read_bytes()), double(kernel.written_bytes()),
                      double(kernel.flops())};
  }
  Work operator()(const plan::Gemm &op) const {
    return GemmWork{int64_t(op.m()),       int64_t(op.n()),       int64_t(op.k()),
                    typeOf(op.a()), typeOf(op.d()), op.c() >= 0};
  }
  Work operator()(const plan::Attention &op) const { return attention(op, false); }
  Work operator()(const plan::AttentionGrad &op) const { return attention(op, true); }
  Work operator()(const plan::ScatterAdd &op) const {
    return ScatterWork{int64_t(op.rows()), int64_t(op.columns()), int64_t(op.vocabulary()),
                       widthOf(op.x()),    widthOf(op.d()),       op.accumulate()};
  }
  // A command without arithmetic worth the name.
  template <typename Body> Work operator()(const Body &op) const {
    KernelWork work;
    for (const plan::Operand &operand : plan::operandsOf(op)) {
      const double bytes = double(slice(uint32_t(operand.slice)).bytes());
      work.readBytes += operand.isRead() ? bytes : 0;
      work.writtenBytes += operand.isResult() ? bytes : 0;
    }
    return work;
  }

private:
  const plan::Slice &slice(uint32_t index) const { return *plan.slices()->Get(index); }
  DataType typeOf(uint32_t index) const { return dataType(slice(index).dtype()); }
  int64_t widthOf(uint32_t index) const { return int64_t(byteWidth(slice(index).dtype())); }
  template <typename Op> Work attention(const Op &op, bool backward) const {
    return AttentionWork{op.batch(),    op.seq(),    op.heads(),     op.kv_heads(),
                         op.head_dim(), op.window(), typeOf(op.q()), backward};
  }

  const plan::Plan &plan;
};

} // namespace

Work workOf(const plan::Plan &plan, const plan::Command &command) {
  return plan::visitBody(command, WorkOf(plan));
}

uint64_t runsPerStep(std::string_view function, uint64_t gas) {
  if (function == names::kMicroFirst || function == names::kOptimizer)
    return 1;
  if (function == names::kMicroLast)
    return gas >= 2 ? 1 : 0;
  if (function == names::kMicro)
    return gas >= 2 ? gas - 2 : 0;
  return 0;
}

// Returns the estimate of one of `count` equal parts of the work that `whole` estimates.
static Estimate share(Estimate whole, size_t count) {
  for (double *part : {&whole.seconds, &whole.flops, &whole.bytes})
    *part /= double(count);
  return whole;
}

static void addLaunch(KernelCost &kernel, const Estimate &estimate, uint64_t runs) {
  kernel.launches += runs;
  kernel.seconds += double(runs) * estimate.seconds;
  kernel.launch = estimate;
}

PlanCost planCost(const plan::Plan &plan, const DeviceSpec &spec) {
  PlanCost cost;
  cost.kernels.resize(plan.kernels()->size());
  const plan::BatchInfo &batch = *plan.batch();
  for (const plan::Function *function : *plan.functions()) {
    FunctionCost entry;
    entry.runsPerStep =
        runsPerStep(function->name()->string_view(), batch.gradient_accumulation_steps());
    for (const plan::Command *command : *function->commands()) {
      Estimate estimate = cost::estimate(workOf(plan, *command), spec);
      entry.seconds += estimate.seconds;
      entry.secondsByBound[size_t(estimate.bound)] += estimate.seconds;
      const std::vector<const plan::Launch *> launches = plan::launchesOf(*command);
      for (const plan::Launch *launch : launches)
        addLaunch(cost.kernels[launch->kernel()], share(estimate, launches.size()),
                  entry.runsPerStep);
      entry.commands.push_back(estimate);
    }
    cost.stepSeconds += double(entry.runsPerStep) * entry.seconds;
    cost.functions.push_back(std::move(entry));
  }
  cost.peakFlops = spec.peakOf(dataType(plan.compute_dtype()));
  if (cost.stepSeconds > 0) {
    double tokens = double(batch.micro_batch_size()) * double(batch.gradient_accumulation_steps()) *
                    double(batch.sequence_length());
    cost.tokensPerSecond = tokens / cost.stepSeconds;
    cost.mfuCausal = cost.tokensPerSecond * plan.model()->flops_per_token_causal() / cost.peakFlops;
    cost.mfuFull = cost.tokensPerSecond * plan.model()->flops_per_token_full() / cost.peakFlops;
  }
  return cost;
}

std::string_view settingOf(const plan::Plan &plan, std::string_view key) {
  for (const plan::Setting *setting : *plan.settings())
    if (setting->key()->string_view() == key)
      return setting->value()->string_view();
  return "";
}

} // namespace lmc::cost
