#include "ground/settings/SettingTable.h"

#include "ground/support/Number.h"
#include "plan_generated.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lmc {

using plan::SettingType;

const char *originName(SettingOrigin origin) {
  constexpr std::array kNames = {"default", "file", "lmc compile --set", "lmc-run --set"};
  return size_t(origin) < kNames.size() ? kNames[size_t(origin)] : "";
}

std::string Setting::text() const {
  return type == SettingType::StringList ? fmt::format("[{}]", fmt::join(values, ", ")) : value;
}

std::string SettingFault::named() const {
  const size_t dot = key.rfind('.');
  const std::string name = key.substr(dot + 1);
  // The text may already begin with a key of the section: "min_lr and min_lr_ratio say the same".
  const bool beginsWithKey =
      text.starts_with(name + " ") || text.find(" and " + name + " ") != std::string::npos;
  return beginsWithKey ? key.substr(0, dot + 1) + text : fmt::format("{}: {}", key, text);
}

const Setting *SettingTable::find(std::string_view key) const {
  const auto entry = std::ranges::find(entries, key, &Setting::key);
  return entry == entries.end() ? nullptr : &*entry;
}

// Each pair has a key that lists data files, and the list of tables that can replace this key.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kKeyOrTables = {
    {{"data.train", "data.source"}, {"data.validation", "validation"}}};

SettingOrigin SettingTable::originOfTables(std::string_view list) const {
  SettingOrigin last = SettingOrigin::Default;
  for (const Setting &setting : entries)
    if (setting.key.starts_with(list) && setting.key.substr(list.size()).starts_with('.'))
      last = std::max(last, setting.origin);
  return last;
}

std::vector<std::string> SettingTable::tablesOf(std::string_view list) const {
  for (const auto &[key, tables] : kKeyOrTables)
    if (const Setting *setting = find(key);
        tables == list && setting && setting->origin > originOfTables(list))
      return {};
  const std::string prefix = std::string(list) + ".";
  std::vector<std::string> names;
  for (const Setting &setting : entries) {
    if (!setting.key.starts_with(prefix))
      continue;
    std::string name = setting.key.substr(prefix.size(), setting.key.rfind('.') - prefix.size());
    if (std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  }
  return names;
}

std::vector<std::string> SettingTable::files(std::string_view key) const {
  const Setting *setting = find(key);
  for (const auto &[single, tables] : kKeyOrTables)
    if (single == key && setting && originOfTables(tables) <= setting->origin)
      return setting->values;
  return {};
}

Result<double> SettingTable::number(std::string_view key) const {
  const Setting *setting = find(key);
  if (!setting || setting->type != SettingType::Float)
    return userError("the plan has no setting '{}' that is a number; compile it again with the lmc "
                     "of this release",
                     key);
  const auto value = parseDouble(setting->value);
  if (!value || !std::isfinite(*value))
    return userError("plan: setting '{}' is '{}', not a number", key, setting->value);
  return *value;
}

Result<PhaseSource> parsePhaseSource(const std::string &text) {
  const size_t equals = text.find('=');
  PhaseSource source{text.substr(0, equals), std::nullopt};
  if (equals == std::string::npos)
    return source;
  source.weight = parseWhole<double>(text.substr(equals + 1));
  if (!source.weight || !std::isfinite(*source.weight) || *source.weight <= 0)
    return userError("'{}' is no source with a weight above 0, such as \"{}=0.7\"", text,
                     source.name);
  return source;
}

} // namespace lmc
