// Names of functions and variables of a plan. plan.fbs describes them (Function, Variable).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lmc::names {

// Names of the functions of a plan.
inline constexpr const char *kMicroFirst = "micro_first";
inline constexpr const char *kMicro = "micro";
inline constexpr const char *kMicroLast = "micro_last";
inline constexpr const char *kOptimizer = "optimizer";
inline constexpr const char *kEval = "eval";
inline constexpr const char *kLogits = "logits";
inline constexpr const char *kGenerate = "generate";
inline constexpr const char *kRefresh = "refresh";

inline bool isMicroStep(std::string_view function) {
  return function == kMicroFirst || function == kMicro || function == kMicroLast;
}

// Names of the variables that the host writes before a micro-step.
inline constexpr const char *kTokens = "batch.tokens";
inline constexpr const char *kTargets = "batch.targets";
inline constexpr const char *kStarts = "batch.starts";
inline constexpr const char *kPositions = "batch.positions";
inline constexpr const char *kRowPositions = "batch.row_positions"; // a token's position in its row

// Variables of the function `generate`. The host writes positions of tokens to kGenerateRows. The
// device writes the logits of the token after each position to kGenerateLogits.
inline constexpr const char *kGenerateRows = "generate.rows";
inline constexpr const char *kGenerateLogits = "generate.logits";

// Names of the variables that the device writes as results.
inline constexpr const char *kLoss = "run.loss";
inline constexpr const char *kEvalLoss = "run.eval_loss";
inline constexpr const char *kGradNorm = "run.grad_norm";
inline constexpr const char *kParamNorm = "run.param_norm";
inline constexpr const char *kUpdateNorm = "run.update_norm";
inline constexpr const char *kDebugLogits = "debug.logits";

// Statistics of routers, summed over the micro-steps and ranks of an optimizer step. The vector
// kRouterSums contains them all. routerSum(NAME, layer), for a NAME below, names the vector of one
// layer, with one element per expert. The vector kRouterBalance itself is a sum over all layers.
inline constexpr const char *kRouterSums = "run.router";
inline constexpr const char *kRouterCounts = "run.router.counts";   // choices
inline constexpr const char *kRouterEntropy = "run.router.entropy"; // sums of -p log p, in nats
// Has one element: how many choices (pairs of a token and its expert) are not in the window of rows
// that a rank computes first. The vector exists only with expert_capacity.
inline constexpr const char *kRouterLate = "run.router.late";
// Has each expert's term of the balancing loss. A layer's vector has it without the factor
// router_aux_loss_coef. The vector of all layers has the terms that are added to tokens' losses.
inline constexpr const char *kRouterBalance = "run.router.balance";

// Returns "attention_grad" for "AttentionGrad", and "muon_ns_dtype" for "muonNsDType".
inline std::string snakeCase(std::string_view name) {
  std::string snake;
  bool afterUpper = true;
  for (const char c : name) {
    const bool isUpper = c >= 'A' && c <= 'Z';
    if (isUpper && !afterUpper)
      snake += '_';
    snake += char(isUpper ? c - 'A' + 'a' : c);
    afterUpper = isUpper;
  }
  return snake;
}

// Returns "run.router.counts.3".
inline std::string routerSum(std::string_view which, int64_t layer) {
  return std::string(which) + "." + std::to_string(layer);
}

// Returns the name of a parameter group's setting: "optimizer.group.GROUP.KEY".
inline std::string groupSetting(std::string_view group, std::string_view key) {
  return "optimizer.group." + std::string(group) + "." + std::string(key);
}

} // namespace lmc::names
