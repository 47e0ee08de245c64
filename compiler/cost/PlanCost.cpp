#include "compiler/cost/PlanCost.h"

#include <algorithm>

namespace lmc::cost {

DataType dataType(plan::DType dtype) {
  return dtype == plan::DType::F64    ? DataType::F64
         : dtype == plan::DType::BF16 ? DataType::BF16
                                      : DataType::F32;
}

Work workOf(const plan::Plan &plan, const plan::Command &command) {
  auto slice = [&](uint32_t index) -> const plan::Slice & { return *plan.slices()->Get(index); };
  auto width = [&](uint32_t index) {
    const plan::Slice &known = slice(index);
    uint64_t elements = 1;
    for (uint64_t extent : *known.shape())
      elements *= extent;
    return elements ? int64_t(known.bytes() / elements) : 0;
  };
  auto attention = [&](const auto &body, bool backward) {
    return AttentionWork{body.batch(),
                         body.seq(),
                         body.heads(),
                         body.kv_heads(),
                         body.head_dim(),
                         body.window(),
                         dataType(slice(body.q()).dtype()),
                         backward};
  };
  switch (command.body_type()) {
  case plan::CommandBody::Gemm: {
    const plan::Gemm &body = *command.body_as_Gemm();
    return GemmWork{int64_t(body.m()),
                    int64_t(body.n()),
                    int64_t(body.k()),
                    dataType(slice(body.a()).dtype()),
                    dataType(slice(body.d()).dtype()),
                    body.c() >= 0};
  }
  case plan::CommandBody::Attention:
    return attention(*command.body_as_Attention(), false);
  case plan::CommandBody::AttentionGrad:
    return attention(*command.body_as_AttentionGrad(), true);
  case plan::CommandBody::ScatterAdd: {
    const plan::ScatterAdd &body = *command.body_as_ScatterAdd();
    return ScatterWork{int64_t(body.rows()), int64_t(body.columns()), int64_t(body.vocabulary()),
                       width(body.x()),      width(body.d()),         body.accumulate()};
  }
  case plan::CommandBody::Launch: {
    const plan::Kernel &kernel = *plan.kernels()->Get(command.body_as_Launch()->kernel());
    return KernelWork{double(kernel.read_bytes()), double(kernel.written_bytes()),
                      double(kernel.flops())};
  }
  case plan::CommandBody::Fill:
    return KernelWork{0, double(slice(command.body_as_Fill()->d()).bytes()), 0};
  case plan::CommandBody::Copy: {
    const plan::Copy &body = *command.body_as_Copy();
    return KernelWork{double(slice(body.x()).bytes()), double(slice(body.d()).bytes()), 0};
  }
  case plan::CommandBody::NONE:
    break;
  }
  return KernelWork{};
}

uint64_t runsPerStep(std::string_view function, uint64_t gas) {
  if (function == "micro_first" || function == "optimizer")
    return 1;
  if (function == "micro_last")
    return gas >= 2 ? 1 : 0;
  if (function == "micro")
    return gas >= 2 ? gas - 2 : 0;
  return 0;
}

static void addLaunch(KernelCost &kernel, const Estimate &estimate, uint64_t runs) {
  kernel.launches += runs;
  kernel.seconds += double(runs) * estimate.seconds;
  kernel.launch = estimate;
}

// Returns the kernels that a CUDA device runs for a command with a body of its own (attention,
// scatter-add, ...); null for a command without such kernels.
static const flatbuffers::Vector<flatbuffers::Offset<plan::Launch>> *
templateLaunches(const plan::Command &command) {
  if (const plan::Attention *attention = command.body_as_Attention())
    return attention->launches();
  if (const plan::AttentionGrad *grad = command.body_as_AttentionGrad())
    return grad->launches();
  if (const plan::ScatterAdd *scatter = command.body_as_ScatterAdd())
    return scatter->launches();
  return nullptr;
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
      if (const plan::Launch *launch = command->body_as_Launch())
        addLaunch(cost.kernels[launch->kernel()], estimate, entry.runsPerStep);
      else if (const auto *launches = templateLaunches(*command)) {
        Estimate share = estimate;
        for (double *part : {&share.seconds, &share.flops, &share.bytes})
          *part /= launches->size();
        for (const plan::Launch *launch : *launches)
          addLaunch(cost.kernels[launch->kernel()], share, entry.runsPerStep);
      }
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
