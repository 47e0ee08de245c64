#include "runtime/monitor/Updates.h"

#include "runtime/monitor/files/StepLines.h"

#include <nlohmann/json.hpp>

#include <utility>

namespace lmc {

Result<UpdatesWriter> UpdatesWriter::open(const std::string &path, int64_t lastStep,
                                          const std::function<Result<std::string>()> &undone) {
  auto file = openStepLines(path, lastStep, undone);
  LMC_TRY(file);
  return UpdatesWriter(std::move(*file));
}

Result<void> UpdatesWriter::write(const StepUpdates &updates) {
  nlohmann::ordered_json ratios = nlohmann::ordered_json::object(), sizes = ratios;
  for (const TensorUpdate &tensor : updates.tensors) {
    ratios[tensor.name] =
        tensor.ratio ? nlohmann::ordered_json(*tensor.ratio) : nlohmann::ordered_json();
    sizes[tensor.name] = tensor.weightRms;
  }
  nlohmann::ordered_json json;
  json["step"] = updates.step;
  json["lr"] = updates.lr;
  json["update_ratio"] = std::move(ratios);
  json["weight_rms"] = std::move(sizes);
  return file.write(json.dump());
}

} // namespace lmc
