#include "ground/settings/SettingTable.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace lmc {

using plan::SettingType;

const char *originName(SettingOrigin origin) {
  switch (origin) {
  case SettingOrigin::Default:
    return "default";
  case SettingOrigin::File:
    return "file";
  case SettingOrigin::CompileSet:
    return "lmc compile --set";
  case SettingOrigin::RunSet:
    return "lmc-run --set";
  }
  return "";
}

std::string Setting::text() const {
  return type == SettingType::StringList ? fmt::format("[{}]", fmt::join(values, ", ")) : value;
}

static const char *typeName(SettingType type) {
  switch (type) {
  case SettingType::Integer:
    return "an integer";
  case SettingType::Float:
    return "a number";
  case SettingType::Boolean:
    return "true or false";
  case SettingType::String:
    return "a string";
  case SettingType::StringList:
    return "a string or a list of strings";
  }
  return "a value";
}

template <typename T> static bool parseWhole(const std::string &text, T &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

const Setting *SettingTable::find(std::string_view key) const {
  auto entry = std::find_if(entries.begin(), entries.end(),
                            [&](const Setting &setting) { return setting.key == key; });
  return entry == entries.end() ? nullptr : &*entry;
}

// The keys of data that can also be given by the tables of a list.
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
  return givenTablesOf(list);
}

std::vector<std::string> SettingTable::givenTablesOf(std::string_view list) const {
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

Result<const Setting *> SettingTable::find(std::string_view key, SettingType type) const {
  const Setting *setting = find(key);
  if (setting && setting->type == type)
    return setting;
  return Error{fmt::format("the plan has no setting '{}' that is {}; compile it again with the lmc "
                           "of this release",
                           key, typeName(type))};
}

Result<int64_t> SettingTable::integer(std::string_view key) const {
  auto entry = find(key, SettingType::Integer);
  LMC_TRY(entry);
  int64_t value = 0;
  if (!parseWhole((*entry)->value, value))
    return Error{fmt::format("plan: setting '{}' is '{}', not an integer", key, (*entry)->value)};
  return value;
}

Result<double> SettingTable::number(std::string_view key) const {
  auto entry = find(key, SettingType::Float);
  LMC_TRY(entry);
  double value = 0;
  if (!parseWhole((*entry)->value, value) || !std::isfinite(value))
    return Error{fmt::format("plan: setting '{}' is '{}', not a number", key, (*entry)->value)};
  return value;
}

Result<bool> SettingTable::boolean(std::string_view key) const {
  auto entry = find(key, SettingType::Boolean);
  LMC_TRY(entry);
  return (*entry)->value == "true";
}

Result<std::string> SettingTable::text(std::string_view key) const {
  auto entry = find(key, SettingType::String);
  LMC_TRY(entry);
  return (*entry)->value;
}

Result<std::vector<std::string>> SettingTable::list(std::string_view key) const {
  auto entry = find(key, SettingType::StringList);
  LMC_TRY(entry);
  for (const auto &[single, tables] : kKeyOrTables)
    if (single == key && originOfTables(tables) > (*entry)->origin)
      return std::vector<std::string>();
  return (*entry)->values;
}

} // namespace lmc
