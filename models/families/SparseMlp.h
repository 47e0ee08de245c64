// The code that families with an MLP of experts share. Keys of [model] have Hugging Face's names.
#pragma once

#include "ground/config/Checks.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/keys/Traits.h"
#include "models/families/Decoder.h"

namespace lmc {

inline constexpr const char *kChosen = "num_experts_per_tok";
inline constexpr const char *kBalanceLoss = "router_aux_loss_coef";
inline constexpr const char *kExpertWidth = "moe_intermediate_size";
inline constexpr const char *kNormalize = "norm_topk_prob";

// Returns the key `name`: the number of experts of a layer.
config::Key expertsKey(const char *name, int64_t initial);
config::Key chosenKey(int64_t initial);
config::Key balanceLossKey(double initial);
config::Key expertWidthKey();
config::Key normalizeKey();

// Writes into an exported config.json whether Hugging Face's class must add the balancing loss.
void writeBalanceLoss(const ModelConfig &model, config::Json &json);

// Returns experts with the inner size `width` and the usual names: `mlp.experts.3.gate_proj`.
Experts expertsOf(const ModelConfig &model, const char *count, int64_t width);

// Reports an error if a token chooses more experts than a layer has (the key `experts`), or if
// distributed.expert_parallel does not divide the number of experts of a layer.
void checkExperts(const config::CheckedJob &job, const char *experts);

} // namespace lmc
