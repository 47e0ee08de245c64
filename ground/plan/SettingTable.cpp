#include "ground/plan/SettingTable.h"

#include "ground/support/Nearest.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>
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

// A value from the command line: its canonical text, or the elements of a list.
struct ParsedValue {
  std::string value;
  std::vector<std::string> values;
  double number = 0;
};

// Reads `text` as a TOML value. For a string or a list of strings, text without quotes or brackets
// is a word. Returns false if the value does not have the type `type`. The compiler reads its --set
// in the same way (ground/config/Parse.h).
static bool parseValue(const std::string &text, SettingType type, ParsedValue &parsed) {
  toml::parse_result document = toml::parse("v = " + text);
  const toml::node *node = document ? document.table().get("v") : nullptr;
  // A text such as "1\nw = 2" would define a second key and is refused.
  if (document && document.table().size() != 1)
    node = nullptr;
  const bool isWord =
      text.empty() || std::string_view("\"'[{").find(text.front()) == std::string_view::npos;
  switch (type) {
  case SettingType::Integer:
    if (!node || !node->is_integer())
      return false;
    parsed.value = fmt::format("{}", node->as_integer()->get());
    parsed.number = static_cast<double>(node->as_integer()->get());
    return true;
  case SettingType::Float:
    if (!node || !node->is_number())
      return false;
    parsed.number = *node->value<double>();
    parsed.value = fmt::format("{}", parsed.number);
    return std::isfinite(parsed.number);
  case SettingType::Boolean:
    if (!node || !node->is_boolean())
      return false;
    parsed.value = node->as_boolean()->get() ? "true" : "false";
    return true;
  case SettingType::String:
    // A command of a shell may begin with a bracket.
    if (isWord || text.front() == '[' || text.front() == '{') {
      parsed.value = text;
      return true;
    }
    if (!node || !node->is_string())
      return false;
    parsed.value = node->as_string()->get();
    return true;
  case SettingType::StringList:
    if (node && node->is_array()) {
      for (const toml::node &element : *node->as_array()) {
        if (!element.is_string())
          return false;
        parsed.values.push_back(element.as_string()->get());
      }
    } else if (isWord) {
      parsed.values = {text};
    } else if (node && node->is_string()) {
      parsed.values = {node->as_string()->get()};
    } else {
      return false;
    }
    return std::ranges::find(parsed.values, "") == parsed.values.end();
  }
  return false;
}

Result<void> SettingTable::apply(const plan::Plan &plan, const std::string &override) {
  size_t equals = override.find('=');
  if (equals == std::string::npos)
    return Error{fmt::format("--set {}: expected section.key=value", override)};
  std::string key = override.substr(0, equals), text = override.substr(equals + 1);

  const auto &settings = *plan.settings();
  auto found = std::find_if(settings.begin(), settings.end(),
                            [&](const plan::Setting *s) { return s->key()->str() == key; });
  if (found == settings.end()) {
    std::vector<std::string> keys;
    for (const plan::Setting *setting : settings)
      if (setting->run_time())
        keys.push_back(setting->key()->str());
    const std::string meant = suggestion(key, keys);
    return Error{fmt::format("--set {}: unknown key '{}'{}", override, key,
                             meant.empty() ? "; the plan has no such setting" : meant)};
  }
  if (!found->run_time())
    return Error{fmt::format("--set {}: '{}' is fixed in the plan; change the TOML and compile "
                             "again",
                             override, key)};

  ParsedValue parsed;
  if (!parseValue(text, found->type(), parsed))
    return Error{fmt::format("--set {}: '{}' takes {}", override, key, typeName(found->type()))};

  bool numeric = found->type() == SettingType::Integer || found->type() == SettingType::Float;
  // In the plan's table, minimum = maximum = 0 means that there are no bounds.
  bool bounded = found->minimum() < found->maximum();
  if (numeric && bounded &&
      !(parsed.number >= found->minimum() && parsed.number <= found->maximum()))
    return Error{fmt::format("--set {}: '{}' must be between {} and {}", override, key,
                             found->minimum(), found->maximum())};
  if (found->type() == SettingType::String && found->choices() && found->choices()->size() > 0) {
    // A choice is found whatever the case of its letters.
    std::ranges::transform(parsed.value, parsed.value.begin(),
                           [](unsigned char letter) { return char(std::tolower(letter)); });
    std::vector<std::string> choices;
    for (const auto *choice : *found->choices())
      choices.push_back(choice->str());
    if (std::find(choices.begin(), choices.end(), parsed.value) == choices.end())
      return Error{fmt::format("--set {}: '{}' is one of {}{}", override, key,
                               fmt::join(choices, ", "), suggestion(parsed.value, choices))};
  }

  Setting &entry = entries[static_cast<size_t>(found - settings.begin())];
  entry.value = parsed.value;
  entry.values = parsed.values;
  entry.origin = SettingOrigin::RunSet;
  return {};
}

Result<SettingTable> SettingTable::fromPlan(const plan::Plan &plan,
                                            const std::vector<std::string> &overrides) {
  SettingTable table;
  for (const plan::Setting *setting : *plan.settings()) {
    Setting entry{.key = setting->key()->str(),
                  .type = setting->type(),
                  .value = setting->value()->str(),
                  .values = {},
                  .origin = static_cast<SettingOrigin>(setting->origin()),
                  .identity = setting->identity(),
                  .derivedFrom = setting->derived_from() ? setting->derived_from()->str() : "",
                  .derivedDivisor = setting->derived_divisor()};
    if (setting->values())
      for (const auto *value : *setting->values())
        entry.values.push_back(value->str());
    table.entries.push_back(std::move(entry));
  }
  for (const std::string &override : overrides)
    LMC_TRY(table.apply(plan, override));
  table.deriveDefaults();
  return table;
}

// A setting that is fixed in the plan needs no new value: the setting that it follows is fixed too,
// or the compiled value holds.
void SettingTable::deriveDefaults() {
  std::set<std::string> moved; // a setting comes before those that follow it
  for (Setting &setting : entries) {
    const Setting *from = find(setting.derivedFrom);
    const bool follows = from && (from->origin == SettingOrigin::RunSet || moved.count(from->key));
    double value = 0;
    if (setting.origin != SettingOrigin::Default || !follows || !parseWhole(from->value, value) ||
        !std::isfinite(value / setting.derivedDivisor))
      continue;
    setting.value = setting.type == SettingType::Integer
                        ? fmt::format("{}", int64_t(value / setting.derivedDivisor))
                        : fmt::format("{}", value / setting.derivedDivisor);
    moved.insert(setting.key);
  }
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
