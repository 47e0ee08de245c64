#include "models/families/SparseMlp.h"

namespace lmc {

using namespace config::keys;

config::Key expertsKey(const char *name, int64_t initial) {
  return familyKey(name, initial, range(1, 1023), "Experts in the MLP of a layer.");
}

config::Key chosenKey(int64_t initial) {
  return familyKey(kChosen, initial, range(1, 32),
                   "Experts of a token: those that the router finds most probable. No token is "
                   "dropped, whatever the router chooses.");
}

config::Key balanceLossKey(double initial) {
  return familyKey(
      kBalanceLoss, initial, range(0, 1),
      "Factor of the loss that keeps experts equally busy (Fedus et al. 2021), which is "
      "added to the training loss; 0: none.");
}

config::Key expertWidthKey() {
  return familyKey(
      kExpertWidth, int64_t(0), range(1, 1048576), required,
      "Width of the MLP of one expert. `intermediate_size` is that of layers without experts.");
}

config::Key normalizeKey() {
  return familyKey(kNormalize, false,
                   "The weights of a token's experts add up to 1; otherwise they are their "
                   "probabilities.");
}

void writeBalanceLoss(const ModelConfig &model, config::Json &json) {
  json["output_router_logits"] = model.familyValue<double>(kBalanceLoss) > 0;
}

Experts expertsOf(const ModelConfig &model, const char *count, int64_t width) {
  return {.count = model.familyValue<int64_t>(count),
          .chosen = model.familyValue<int64_t>(kChosen),
          .intermediateSize = width,
          .normalize = model.familyValue<bool>(kNormalize),
          .router = "mlp.gate",
          .experts = "mlp.experts",
          .gate = "gate_proj",
          .up = "up_proj",
          .down = "down_proj"};
}

void checkExperts(const config::CheckedJob &job, const char *experts) {
  const std::string all = std::string("model.") + experts, own = std::string("model.") + kChosen;
  if (!job.sound({all.c_str(), own.c_str()}))
    return;
  const auto count = job.config.model.familyValue<int64_t>(experts);
  const auto chosen = job.config.model.familyValue<int64_t>(kChosen);
  if (chosen > count)
    job.error(job.provenance.given(own) ? own : all, "{} = {} is more than {} = {}", kChosen,
              chosen, experts, count);
  const std::string parallel = "distributed.expert_parallel";
  const int64_t parts = job.config.distributed.expertParallel;
  if (job.sound({parallel.c_str()}) && count % parts != 0)
    job.error(parallel,
              "expert_parallel = {} does not divide the {} experts of a layer ({}); use {}", parts,
              count, experts, config::nearestDivisors(count, parts));
}

} // namespace lmc
