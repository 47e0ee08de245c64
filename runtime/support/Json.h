// JSON from untrusted files.
#pragma once

#include "runtime/support/Result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace lmc {

// Parses `text`, the contents of the file `path`: a JSON object. Nesting deeper than 64 is an Error
// before any value is built.
Result<nlohmann::json> parseJsonObject(std::string_view text, const std::string &path);

} // namespace lmc
