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

// A value of a key. An empty list counts as a list of strings.
using Value = std::variant<bool, int64_t, double, std::string, std::vector<std::string>,
                           std::vector<int64_t>, OtherValue>;

// Checks `value` against the key's type, range and choices, and stores it. The Error names the key.
Result<void> assign(const Key &key, const Value &value, Config &config);

// Returns the key, with its value in `config`, in the form that the plan stores.
Setting resolvedSetting(const Key &key, Config &config);

// Returns the defaults of the key's families that differ from the default of the first family.
std::vector<std::pair<const ModelFamily *, std::string>> otherDefaults(const Key &key);

// Returns the default of a key that is not required, as markdown: "`0.1`" or "lr / 10".
std::string defaultMarkdown(const Key &key);

// Returns the value of a setting of a plan. Error: the text is no value of the setting's type.
Result<Value> planValue(const Setting &setting);

} // namespace lmc::config
