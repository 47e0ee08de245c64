// Parses JSON from files that may be damaged or hostile.
#pragma once

#include "ground/support/Result.h"

#include <nlohmann/json_fwd.hpp>

#include <string>
#include <string_view>

namespace lmc {

// Returns true if brackets outside of strings are nested at most 64 deep. The result has no meaning
// for text that is not JSON.
bool isShallowJson(std::string_view text);

// Parses `text`, the contents of the file `path`, as one JSON object. Fails if `text` is not a JSON
// object, or if its values are nested more than 64 deep. The depth is checked first.
Result<nlohmann::json> parseJsonObject(std::string_view text, const std::string &path);

// Reads and parses a file that holds a JSON object. A file of more than `maximumBytes` is an Error.
Result<nlohmann::json> readJsonObject(const std::string &path, uint64_t maximumBytes);

} // namespace lmc
