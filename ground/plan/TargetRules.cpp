#include "ground/plan/TargetRules.h"

namespace lmc::plan {
namespace {

DType dtypeOf(const Plan &plan, uint32_t slice) { return plan.slices()->Get(slice)->dtype(); }

// Returns a command's scratch on a CPU: attention's gradient in bf16 needs f32 space to sum dq, and
// a product of factors of 8 bits needs space for the numbers that they stand for.
std::optional<Scratch> cpuScratch(const Plan &plan, const Command &command) {
  if (const Gemm *gemm = command.body_as_Gemm(); gemm && gemm->scale_a() >= 0)
    return Scratch{DType::BF16, {gemm->m() + gemm->n(), gemm->k(), 1, 1}};
  if (const ExpertScaledLinear *op = command.body_as_ExpertScaledLinear()) {
    constexpr uint64_t kBlock = 128;
    return Scratch{
        DType::BF16,
        {op->rows() + op->experts() * op->across() * kBlock, op->depth() * kBlock, 1, 1}};
  }
  const AttentionGrad *grad = command.body_as_AttentionGrad();
  if (!grad || dtypeOf(plan, grad->q()) != DType::BF16)
    return std::nullopt;
  return Scratch{DType::F32, {grad->batch(), grad->seq(), grad->heads(), grad->head_dim()}};
}

// Returns the minimum scratch of a command on CUDA; some kernels need more. The gradient of
// attention stores the sum of dout * out for each token and head. Scatter-add sorts pairs of an id
// and a token; a pair has 8 bytes.
std::optional<Scratch> cudaScratch(const Plan &plan, const Command &command) {
  if (const AttentionGrad *grad = command.body_as_AttentionGrad())
    return Scratch{sumType(dtypeOf(plan, grad->q())),
                   {grad->batch(), grad->seq(), grad->heads(), 1}};
  if (const ScatterAdd *scatter = command.body_as_ScatterAdd())
    return Scratch{DType::I8, {scatter->rows(), 8, 1, 1}};
  // For each expert, a thread block stores the number of choices and the sum of p (lm.route).
  if (const Route *route = command.body_as_Route())
    return Scratch{DType::I8, {route->count(), 8, 1, 1}};
  if (const SortRows *sort = command.body_as_SortRows())
    return Scratch{DType::I8, {sort->count(), 4, 1, 1}};
  return std::nullopt;
}

// Each limit is the maximum over all devices of compute capability 8.0 or later (CUDA C++
// Programming Guide, "Technical Specifications per Compute Capability").
constexpr GridLimits kCudaLimits = {.blocks = {0x7fffffff, 0xffff, 0xffff},
                                    .threads = 1024,
                                    .threadMultiple = 32,
                                    .registers = 255,
                                    .stackBytes = 512 << 10,
                                    .sharedBytes = 227 << 10};

constexpr TargetRules kRules[] = {
    {.name = "cpu", .eightBits = EightBits::AnyLayout, .scratchOf = cpuScratch},
    {.name = "cuda",
     .grid = &kCudaLimits,
     .modulesMatch = true,
     .gemmWorkspaceAlignment = 256,
     .eightBits = EightBits::RowsOfK,
     .scratchOf = cudaScratch},
};

constexpr TargetRules kOtherRules = {.name = ""};

} // namespace

const TargetRules &rulesOf(std::string_view target) {
  const std::string_view name = target.substr(0, target.find(':'));
  for (const TargetRules &rules : kRules)
    if (rules.name == name)
      return rules;
  return kOtherRules;
}

} // namespace lmc::plan
