// JSON from files that nobody vouches for.
#pragma once

#include "runtime/support/Result.h"

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

namespace lmc {

// Parses `text`, the contents of the file `path`: a JSON object, nested at most
// 64 deep (deeper ones are refused before anything is built).
Result<nlohmann::json> parseJsonObject(std::string_view text, const std::string &path);

} // namespace lmc
