#include "runtime/monitor/files/StepLines.h"

#include <nlohmann/json.hpp>

namespace lmc {

// Returns true if `line` is the record of a later step than `lastStep`.
static bool isLater(const std::string &line, int64_t lastStep) {
  nlohmann::json record = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!record.is_object())
    return false;
  auto step = record.find("step");
  return step != record.end() && step->is_number_integer() && step->get<int64_t>() > lastStep;
}

Result<LineFile> openStepLines(const std::string &path, int64_t lastStep,
                               const std::function<Result<std::string>()> &undone) {
  return LineFile::openAndMove(
      path, [&](const std::string &line) { return isLater(line, lastStep); }, undone);
}

} // namespace lmc
