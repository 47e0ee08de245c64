#include "runtime/monitor/Updates.h"

#include <nlohmann/json.hpp>

#include <utility>

namespace lmc {

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
