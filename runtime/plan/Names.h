// Names that the compiler gives to functions and variables of a plan and that the runtime, or a
// report, looks for. plan.fbs (Function, Variable) says what each is.
#pragma once

#include <string_view>

namespace lmc::names {

// Functions.
inline constexpr const char *kMicroFirst = "micro_first";
inline constexpr const char *kMicro = "micro";
inline constexpr const char *kMicroLast = "micro_last";
inline constexpr const char *kOptimizer = "optimizer";
inline constexpr const char *kEval = "eval";
inline constexpr const char *kLogits = "logits";

inline bool isMicroStep(std::string_view function) {
  return function == kMicroFirst || function == kMicro || function == kMicroLast;
}

// Inputs.
inline constexpr const char *kTokens = "batch.tokens";
inline constexpr const char *kTargets = "batch.targets";
inline constexpr const char *kStarts = "batch.starts";

// Results.
inline constexpr const char *kLoss = "run.loss";
inline constexpr const char *kEvalLoss = "run.eval_loss";
inline constexpr const char *kGradNorm = "run.grad_norm";
inline constexpr const char *kParamNorm = "run.param_norm";
inline constexpr const char *kUpdateNorm = "run.update_norm";
inline constexpr const char *kDebugLogits = "debug.logits";

} // namespace lmc::names
