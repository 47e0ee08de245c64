#include "ground/config/RunSettings.h"

#include "ground/config/Parse.h"
#include "ground/config/Values.h"
#include "ground/support/Number.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace lmc {
namespace {

using namespace lmc::config;

class Reader {
public:
  explicit Reader(const plan::Plan &plan) : plan(plan) {}

  Result<RunSettings> read(const std::vector<std::string> &overrides) {
    for (const plan::Setting *setting : *plan.settings())
      LMC_TRY(add(*setting));
    for (const std::string &override : overrides)
      if (Result<void> applied = apply(override); !applied)
        return userError("--set {}: {}", override, applied.error().message);
    LMC_TRY(deriveDefaults());
    settings.table = SettingTable(std::move(entries));
    return std::move(settings);
  }

private:
  Result<void> store(const Setting &entry) {
    // Skips keys that this release lacks, and [model], which is compiled into the plan's functions.
    const Key *key = entry.key.starts_with("model.") ? nullptr : keys.reach(entry.key);
    if (!key)
      return {};
    // Skips default values, because assign() may refuse a default that means "not given".
    const Setting present = resolvedSetting(*key, settings.config);
    if (present.value == entry.value && present.values == entry.values)
      return {};
    const auto value = planValue(entry);
    if (Result<void> stored = value ? assign(*key, *value, settings.config) : value.error();
        !stored)
      return userError("plan: {}", stored.error().message);
    return {};
  }

  Result<void> add(const plan::Setting &setting) {
    Setting entry{.key = setting.key()->str(),
                  .type = setting.type(),
                  .value = setting.value()->str(),
                  .values = {},
                  .origin = static_cast<SettingOrigin>(setting.origin()),
                  .identity = setting.identity(),
                  .derivedFrom = setting.derived_from() ? setting.derived_from()->str() : "",
                  .derivedDivisor = setting.derived_divisor()};
    if (setting.values())
      for (const auto *value : *setting.values())
        entry.values.push_back(value->str());
    LMC_TRY(store(entry));
    entries.push_back(std::move(entry));
    return {};
  }

  Result<void> apply(const std::string &override) {
    const std::string path = trimmed(override.substr(0, override.find('=')));
    const auto entry = std::ranges::find(entries, path, &Setting::key);
    const bool isKnown = entry != entries.end();
    if (isKnown && !plan.settings()->Get(uint32_t(entry - entries.begin()))->run_time())
      return userError("'{}' is fixed in the plan; change the TOML and compile again", path);
    Diagnostics diagnostics;
    const std::vector<Assignment> parsed = parseOverrides({override}, keys, diagnostics);
    if (parsed.empty())
      return Error{diagnostics.firstMessage()};
    if (!isKnown)
      return userError("the plan has no '{}'; compile it again with the lmc of this release", path);
    const Assignment &assignment = parsed.front();
    LMC_TRY(assign(*assignment.key, assignment.value, settings.config));
    Setting resolved = resolvedSetting(*assignment.key, settings.config);
    entry->value = std::move(resolved.value);
    entry->values = std::move(resolved.values);
    entry->origin = SettingOrigin::RunSet;
    return {};
  }

  // Computes the defaults that derive from settings that `--set` has changed.
  Result<void> deriveDefaults() {
    std::map<std::string, std::string> moved; // changed values; a key comes after its derivedFrom
    for (Setting &entry : entries) {
      if (entry.origin == SettingOrigin::RunSet)
        moved[entry.key] = entry.value;
      const auto from = moved.find(entry.derivedFrom);
      if (entry.origin != SettingOrigin::Default || from == moved.end())
        continue;
      const auto number = parseDouble(from->second);
      if (!number || !std::isfinite(*number / entry.derivedDivisor))
        continue;
      const double value = *number / entry.derivedDivisor;
      const bool isInteger = entry.type == plan::SettingType::Integer;
      entry.value = isInteger ? fmt::format("{}", int64_t(value)) : fmt::format("{}", value);
      moved[entry.key] = entry.value;
      LMC_TRY(store(entry));
    }
    return {};
  }

  const plan::Plan &plan;
  KeyTable keys{{}};
  std::vector<Setting> entries; // the plan's settings, changed by `--set`, in the plan's order
  RunSettings settings;
};

} // namespace

Result<RunSettings> RunSettings::read(const plan::Plan &plan,
                                      const std::vector<std::string> &overrides) {
  return Reader(plan).read(overrides);
}

} // namespace lmc
