#include "runtime/checkpoint/RecordedRun.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace lmc {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RecordedSetting, value, values, origin, identity, derivedFrom,
                                   planned)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeclaredChange, step, key, from, to)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunIdentity, run, startedFrom, init, planHash, planPath, target,
                                   compilerVersion, runtimeVersion, host, configPath, configDirectory, configToml,
                                   huggingfaceConfig, settings, changes)

std::string RecordedSetting::text() const {
  return value.empty() && !values.empty() ? fmt::format("[{}]", fmt::join(values, ", ")) : value;
}

nlohmann::json toJson(const RunIdentity &identity) {
  nlohmann::json json = identity;
  for (auto [key, files] : kRecordedData) {
    json[key] = nlohmann::json::array();
    for (const FileFingerprint &file : identity.*files)
      json[key].push_back(nlohmann::json(toJson(file)));
  }
  // Paths and texts that are no UTF-8 get replacement characters, because JSON cannot hold them.
  return nlohmann::json::parse(
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

RunIdentity runIdentityFromJson(const nlohmann::json &json) {
  auto identity = json.get<RunIdentity>();
  for (auto [key, files] : kRecordedData)
    for (const nlohmann::json &entry : json.at(key)) {
      auto file = fingerprintFromJson(entry);
      if (!file)
        throw nlohmann::json::other_error::create(0, file.error().message, &entry);
      (identity.*files).push_back(std::move(*file));
    }
  return identity;
}

} // namespace lmc
