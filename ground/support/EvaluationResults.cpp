#include "ground/support/EvaluationResults.h"

#include "ground/support/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

namespace lmc {

static constexpr uint64_t kMaximumBytes = 64 << 20;

static void addNumbers(const nlohmann::json &value, const std::string &name,
                       EvaluationResults &to) {
  if (value.is_object())
    for (const auto &[key, inner] : value.items())
      addNumbers(inner, name.empty() ? key : name + "/" + key, to);
  else if (value.is_number() && std::isfinite(value.get<double>()) &&
           to.size() < kMaxEvaluationResults)
    to[name] = value.get<double>();
}

Result<EvaluationResults> readEvaluation(const std::string &folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  std::vector<std::string> files;
  for (fs::recursive_directory_iterator entry(folder, failed), end; !failed && entry != end;
       entry.increment(failed))
    if (entry->path().extension() == ".json" && entry->is_regular_file(failed))
      files.push_back(entry->path().string());
  if (failed)
    return machineError("cannot read {}: {}", folder, failed.message());
  std::ranges::sort(files);
  EvaluationResults numbers;
  for (const std::string &file : files) {
    const auto json = readJsonObject(file, kMaximumBytes);
    if (!json)
      continue;
    const auto results = json->find("results");
    addNumbers(results != json->end() && results->is_object() ? *results : *json, "", numbers);
  }
  return numbers;
}

} // namespace lmc
