// Values on their way from text (TOML, --set, JSON) into the fields of a Config.
#pragma once

#include "compiler/config/Keys.h"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace lmc::config {

// A value that no key takes: what it is, for the error ("a date", "a table").
struct OtherValue {
  std::string what;
};

using Value =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>, OtherValue>;

// Checks `value` against the key's type, range and choices and stores it.
// Returns what is wrong with it, as a sentence that names the key.
std::optional<std::string> assign(const Key &key, const Value &value, Config &config);

// The key's value in `config` as the plan records it.
ResolvedSetting resolvedSetting(const Key &key, Config &config);

// Bytes of "76GiB", "1.5 GB", "4096". Returns what is wrong otherwise.
std::variant<uint64_t, std::string> parseSize(std::string_view text);

} // namespace lmc::config
