#include "runtime/checkpoint/RecordedRun.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace lmc {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RecordedSetting, value, values, origin, identity, derivedFrom,
                                   planned)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(DeclaredChange, step, key, from, to)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Rollback, step, spike, position)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RunIdentity, run, startedFrom, init, planHash, planPath, target,
                                   compilerVersion, runtimeVersion, host, device, configPath,
                                   configDirectory, configToml, huggingfaceConfig, notExportable,
                                   settings, changes, rollbacks)

std::string RecordedSetting::text() const {
  return value.empty() && !values.empty() ? fmt::format("[{}]", fmt::join(values, ", ")) : value;
}

std::vector<FileFingerprint> RunIdentity::trainData() const {
  std::vector<FileFingerprint> all;
  for (const auto &[key, files] : data)
    if (!namesValidationFiles(key))
      all.insert(all.end(), files.begin(), files.end());
  return all;
}

// Returns true if `key` is "LIST.NAME.paths", where LIST is `list` and NAME is any name.
static bool isPathsOf(std::string_view list, std::string_view key) {
  return key.starts_with(list) && key.substr(list.size()).starts_with('.') &&
         key.ends_with(".paths");
}

bool namesTokenFiles(std::string_view key) {
  return key == kTrainData || isPathsOf(kSources, key) || namesValidationFiles(key);
}

bool namesValidationFiles(std::string_view key) {
  return key == kValidationData || isPathsOf(kValidationSets, key);
}

nlohmann::json toJson(const RunIdentity &identity) {
  nlohmann::json json = identity;
  for (const auto &[key, files] : identity.data) {
    json[key] = nlohmann::json::array();
    for (const FileFingerprint &file : files)
      json[key].push_back(nlohmann::json(toJson(file)));
  }
  // Texts that are not valid UTF-8 get replacement characters, because JSON cannot hold them.
  return nlohmann::json::parse(
      json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

RunIdentity runIdentityFromJson(const nlohmann::json &json) {
  nlohmann::json complete = json;
  if (complete.is_object()) { // an earlier release did not write these members
    complete.emplace("rollbacks", nlohmann::json::array());
    complete.emplace("notExportable", "");
    complete.emplace("device", "");
  }
  auto identity = complete.get<RunIdentity>();
  for (const auto &[key, files] : json.items()) {
    if (!namesTokenFiles(key))
      continue;
    for (const nlohmann::json &entry : files) {
      auto file = fingerprintFromJson(entry);
      if (!file)
        throw nlohmann::json::other_error::create(0, file.error().message, &entry);
      identity.data[key].push_back(std::move(*file));
    }
  }
  return identity;
}

} // namespace lmc
