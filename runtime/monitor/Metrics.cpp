#include "runtime/monitor/Metrics.h"

#include "runtime/monitor/RunLog.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>

namespace lmc {

const char *nameOf(SkipReason reason) {
  constexpr const char *kNames[] = {"", "not_finite", "spike", "named"};
  return kNames[static_cast<int>(reason)];
}

void addValidation(const ValidationRecord &record, nlohmann::ordered_json &json) {
  const std::string prefix = record.set.empty() ? "validation_" : "";
  nlohmann::ordered_json &values = record.set.empty() ? json : json["validation"][record.set];
  values[prefix + "loss"] = record.loss;
  values[prefix + "perplexity"] = std::exp(record.loss);
  if (record.bitsPerByte)
    values[prefix + "bits_per_byte"] = *record.bitsPerByte;
}

std::string lineOf(const StepRecord &record) {
  nlohmann::ordered_json json;
  json["step"] = record.step;
  if (!record.phase.empty())
    json["phase"] = record.phase;
  json["loss"] = record.loss;
  json["lr"] = record.lr;
  json["grad_norm"] = record.gradNorm;
  json["update_ratio"] = record.updateRatio;
  json["tokens"] = record.tokens;
  json["tokens_per_second"] = record.tokensPerSecond;
  json["mfu_causal"] = record.mfuCausal;
  json["mfu_full"] = record.mfuFull;
  json["tflops_per_device"] = record.deviceFlops / 1e12;
  json["step_seconds"] = record.stepSeconds;
  json["data_seconds"] = record.dataSeconds;
  json["validation_seconds"] = record.validationSeconds;
  json["save_seconds"] = record.saveSeconds;
  json["time"] = timeText(std::chrono::system_clock::now());
  json["memory_bytes"] = record.memoryBytes;
  if (record.skipped != SkipReason::None) {
    json["skipped"] = true;
    json["skip_reason"] = nameOf(record.skipped);
  }
  if (record.balanceLoss)
    json["balance_loss"] = *record.balanceLoss;
  for (const RouterRecord &router : record.routers)
    for (const auto &[name, value] : valuesOf(router))
      json["router"][std::to_string(router.layer)][name] = value;
  for (const SourceRecord &source : record.sources)
    json["sources"][source.name] = {{"tokens", source.tokens}, {"epochs", source.epochs}};
  for (const ValidationRecord &validation : record.validations)
    addValidation(validation, json);
  return json.dump();
}

std::string lineOf(const StepUpdates &updates) {
  nlohmann::ordered_json ratios = nlohmann::ordered_json::object(), sizes = ratios;
  for (const TensorUpdate &tensor : updates.tensors) {
    ratios[tensor.name] =
        tensor.ratio ? nlohmann::ordered_json(*tensor.ratio) : nlohmann::ordered_json();
    sizes[tensor.name] = tensor.weightRms;
  }
  const nlohmann::ordered_json json = {{"step", updates.step},
                                       {"lr", updates.lr},
                                       {"update_ratio", std::move(ratios)},
                                       {"weight_rms", std::move(sizes)}};
  return json.dump();
}

} // namespace lmc
