#include "runtime/settings/RunIdentity.h"

#include "ground/support/Nearest.h"
#include "ground/support/Release.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <random>
#include <set>
#include <sys/utsname.h>

namespace lmc {

static constexpr const char *kShuffleBlock = "data.shuffle_block";

// Returns "NAME, CPU, SYSTEM": "node7, AMD EPYC 9654, Linux 6.1 x86_64".
static std::string hostText() {
  utsname system{};
  ::uname(&system);
  std::string cpu = "CPU unknown", line;
  for (std::ifstream info("/proc/cpuinfo"); std::getline(info, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      cpu = line.substr(line.find(": ") + 2);
      break;
    }
  return fmt::format("{}, {}, {} {} {}", system.nodename, cpu, system.sysname, system.release,
                     system.machine);
}

static std::string plannedText(const plan::Setting &setting) {
  if (setting.type() != plan::SettingType::StringList)
    return setting.value()->str();
  std::vector<std::string> values;
  if (setting.values())
    for (const auto *value : *setting.values())
      values.push_back(value->str());
  return fmt::format("[{}]", fmt::join(values, ", "));
}

RunIdentity describeRun(const PlanFile &plan, const SettingTable &settings) {
  auto text = [](const flatbuffers::String *value) { return value ? value->str() : ""; };
  RunIdentity identity;
  identity.planHash = plan.hash();
  identity.planPath = plan.path();
  identity.target = plan->target()->str();
  identity.compilerVersion = plan->compiler_version()->str();
  identity.runtimeVersion = kRelease.text;
  identity.host = hostText();
  identity.configPath = text(plan->config_path());
  identity.configDirectory = text(plan->config_directory());
  identity.configToml = text(plan->config_toml());
  identity.huggingfaceConfig = text(plan->model()->huggingface_config());
  identity.notExportable = text(plan->model()->not_exportable());
  for (size_t i = 0; i < settings.all().size(); ++i) {
    const Setting &setting = settings.all()[i];
    const auto &planned = *plan->settings()->Get(static_cast<flatbuffers::uoffset_t>(i));
    identity.settings[setting.key] = {.value = setting.value,
                                      .values = setting.values,
                                      .origin = originName(setting.origin),
                                      .identity = setting.identity,
                                      .derivedFrom = setting.derivedFrom,
                                      .planned = plannedText(planned)};
  }
  return identity;
}

std::string drawRunId() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

// Returns "key=VALUE" with VALUE as TOML.
static std::string overrideOf(const plan::Setting &setting, const RecordedSetting &recorded) {
  // Strings and arrays of strings have the same syntax in TOML as in JSON.
  const std::string value =
      setting.type() == plan::SettingType::StringList ? nlohmann::json(recorded.values).dump()
      : setting.type() == plan::SettingType::String   ? nlohmann::json(recorded.value).dump()
                                                      : recorded.value;
  return fmt::format("{}={}", setting.key()->str(), value);
}

std::vector<std::string> repeatedOverrides(const RunIdentity &before, const plan::Plan &plan,
                                           bool hasPosition) {
  std::vector<std::string> overrides;
  for (const plan::Setting *setting : *plan.settings()) {
    auto recorded = before.settings.find(setting->key()->str());
    if (recorded == before.settings.end() || !setting->run_time())
      continue;
    const std::string planned = plannedText(*setting);
    const bool changed = recorded->second.text() != planned;
    const bool wasSet = recorded->second.origin == originName(SettingOrigin::RunSet) &&
                        recorded->second.planned == planned;
    const bool isBlock = hasPosition && setting->key()->string_view() == kShuffleBlock &&
                         setting->origin() == plan::SettingOrigin::Default;
    if (wasSet || (changed && isBlock))
      overrides.push_back(overrideOf(*setting, recorded->second));
  }
  return overrides;
}

std::vector<SettingChange> compareSettings(const RunIdentity &before, const RunIdentity &now) {
  std::set<std::string> keys;
  for (const auto *identity : {&before, &now})
    for (const auto &[key, setting] : identity->settings)
      keys.insert(key);
  std::erase_if(keys, namesTokenFiles);
  static const RecordedSetting absent = {.value = "absent"};
  auto find = [](const RunIdentity &identity, const std::string &key) -> const RecordedSetting & {
    auto found = identity.settings.find(key);
    return found == identity.settings.end() ? absent : found->second;
  };
  // A missing setting equals its default value: only one of two releases of lmc has the setting.
  auto isNew = [](const RecordedSetting &unknown, const RecordedSetting &known) {
    return &unknown == &absent && known.origin == originName(SettingOrigin::Default);
  };
  std::vector<SettingChange> changes;
  for (const std::string &key : keys) {
    const RecordedSetting &from = find(before, key), &to = find(now, key);
    if (from.text() != to.text() && !isNew(from, to) && !isNew(to, from))
      changes.push_back({key, from.text(), to.text(), from.identity || to.identity,
                         to.origin == originName(SettingOrigin::Default) ? to.derivedFrom : ""});
  }
  return changes;
}

static std::string summary(const std::vector<FileFingerprint> &files) {
  if (files.empty())
    return "absent";
  uint64_t tokens = 0;
  for (const FileFingerprint &file : files)
    tokens += file.tokens;
  return fmt::format("{} tokens in {} file(s)", tokens, files.size());
}

std::vector<SettingChange> compareData(const RunIdentity &before, const RunIdentity &now) {
  std::vector<SettingChange> changes;
  auto both = before.data;
  both.insert(now.data.begin(), now.data.end());
  auto filesIn = [](const RunIdentity &identity, const std::string &key) {
    auto found = identity.data.find(key);
    return found == identity.data.end() ? std::vector<FileFingerprint>() : found->second;
  };
  for (const auto &[key, files] : both) {
    const std::vector<FileFingerprint> was = filesIn(before, key), is = filesIn(now, key);
    std::string detail;
    for (size_t i = 0; i < std::min(was.size(), is.size()) && detail.empty(); ++i)
      if (auto differs = difference(was[i], is[i]))
        detail = fmt::format(" ({}: {})", is[i].path, *differs);
    if (was.size() != is.size() || !detail.empty())
      changes.push_back({key, summary(was), summary(is) + detail,
                         /*identity=*/!namesValidationFiles(key), ""});
  }
  return changes;
}

static bool changesEverySource(const SettingChange &change) {
  return change.key == kShuffleBlock || change.key == "data.packing" ||
         change.key == "training.seed";
}

bool reordersData(const std::vector<SettingChange> &changes) {
  return std::ranges::any_of(changes, [](const SettingChange &change) {
    const bool isMixture = change.key.starts_with(kSources) && change.key.ends_with(".weight");
    return changesEverySource(change) || isMixture ||
           (namesTokenFiles(change.key) && !namesValidationFiles(change.key));
  });
}

bool keepsSource(const std::vector<SettingChange> &changes, std::string_view key) {
  return std::ranges::none_of(changes, [&](const SettingChange &change) {
    return changesEverySource(change) || change.key == key;
  });
}

static bool covers(const std::string &declared, const std::string &key) {
  return declared == key || key.starts_with(declared + ".");
}

std::vector<SettingChange> undeclared(const std::vector<SettingChange> &changes,
                                      const std::vector<std::string> &declared) {
  auto isDeclared = [&](const std::string &key) {
    return std::ranges::any_of(declared,
                               [&](const std::string &name) { return covers(name, key); });
  };
  // A setting's default may derive from a second setting, whose default derives from a third.
  auto isCovered = [&](const SettingChange *change) {
    for (size_t depth = 0; depth <= changes.size(); ++depth) {
      if (isDeclared(change->key))
        return true;
      auto source = std::ranges::find(changes, change->derivedFrom, &SettingChange::key);
      if (source == changes.end())
        return false;
      change = &*source;
    }
    return false;
  };
  std::vector<SettingChange> left;
  for (const SettingChange &change : changes)
    if (change.identity && !isCovered(&change))
      left.push_back(change);
  return left;
}

Result<void> checkDeclarations(const std::vector<std::string> &declared, const RunIdentity &now,
                               const RunIdentity *before) {
  std::map<std::string, RecordedSetting> settings = now.settings;
  if (before)
    settings.insert(before->settings.begin(), before->settings.end());
  for (const std::string &name : declared) {
    std::vector<std::string> keys;
    bool known = false;
    for (const auto &[key, setting] : settings) {
      known |= covers(name, key);
      if (setting.identity)
        keys.push_back(key);
    }
    if (!known)
      return userError("--change={}: the plan has no such setting{}", name, suggestion(name, keys));
  }
  return {};
}

std::string describe(const std::vector<SettingChange> &changes) {
  std::vector<std::string> texts;
  for (const SettingChange &change : changes)
    texts.push_back(fmt::format(
        "{} is {} there and {} here{}", change.key, change.from, change.to,
        change.derivedFrom.empty() ? ""
                                   : fmt::format(" (its default follows {})", change.derivedFrom)));
  return fmt::format("{}", fmt::join(texts, "; "));
}

} // namespace lmc
