// Converts values from text (TOML, --set, JSON) to fields of a Config.
#pragma once

#include "compiler/config/Keys.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lmc::config {

// A value of a type that no key accepts, with a description for the error ("a date", "a table").
struct OtherValue {
  std::string what;
};

using Value =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, OtherValue>;

// Checks `value` against the key's type, range and choices, and stores it. Returns the mistake, if
// there is one, as a sentence that names the key.
std::optional<std::string> assign(const Key &key, const Value &value, Config &config);

// Returns the key's value in `config` in the form of the plan.
ResolvedSetting resolvedSetting(const Key &key, Config &config);

// Bytes of "76GiB", "1.5 GB", "4096". Returns what is wrong otherwise.
std::variant<uint64_t, std::string> parseSize(std::string_view text);

} // namespace lmc::config
