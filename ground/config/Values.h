// Converts values from text (TOML, --set, JSON) to fields of a Config.
#pragma once

#include "ground/config/Keys.h"
#include "ground/settings/SettingTable.h"
#include "ground/support/Result.h"
#include "plan_generated.h"

#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace lmc::config {

// A value of a type that no key accepts. `what` describes it in an error: "a date", "a table".
struct OtherValue {
  std::string what;
};

// A value of a key. An empty list is stored as a list of strings, even for a list of integers.
using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>,
                           std::vector<int64_t>, OtherValue>;

// Checks `value` against the key's type, range and choices, and stores it. The Error names the key.
Result<void> assign(const Key &key, const Value &value, Config &config);

// Returns the key's name and its value in `config` as texts, as the plan stores them.
Setting resolvedSetting(const Key &key, Config &config);

// Returns the families whose default of `key` differs from the first family's, with their defaults.
std::vector<std::pair<const ModelFamily *, std::string>> otherDefaults(const Key &key);

// Returns the default of a key that is not required, as markdown: "`0.1`" or "lr / 10".
std::string defaultMarkdown(const Key &key);

// Returns the value of a setting of a plan. Error: the text does not have the setting's type.
Result<Value> planValue(const Setting &setting);

} // namespace lmc::config
