// Converts values from text (TOML, --set, JSON) to fields of a Config.
#pragma once

#include "compiler/config/Keys.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lmc::config {

// A value of a type that no key accepts; `what` describes it for the error ("a date", "a table").
struct OtherValue {
  std::string what;
};

using Value =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, OtherValue>;

// Checks `value` against the key's type, range and choices, and stores it in `config`. Returns
// nothing on success, otherwise a sentence that names the key and the mistake.
std::optional<std::string> assign(const Key &key, const Value &value, Config &config);

// Returns the key and its value in `config` in the form that the plan stores.
ResolvedSetting resolvedSetting(const Key &key, Config &config);

// Returns the number of bytes of a size such as "76GiB", "1.5 GB" or "4096", otherwise the mistake.
std::variant<uint64_t, std::string> parseSize(std::string_view text);

} // namespace lmc::config
