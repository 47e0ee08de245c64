#include "ground/support/Json.h"

#include "ground/support/File.h"

#include <nlohmann/json.hpp>

namespace lmc {

static constexpr int kMaximumDepth = 64;

bool isShallowJson(std::string_view text) {
  int depth = 0;
  bool inString = false;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (inString) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        inString = false;
    } else if (c == '"') {
      inString = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaximumDepth)
        return false;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return true;
}

Result<nlohmann::json> parseJsonObject(std::string_view text, const std::string &path) {
  if (!isShallowJson(text))
    return userError("{}: JSON nested more than {} deep", path, kMaximumDepth);
  nlohmann::json value = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object())
    return userError("{}: not a JSON object", path);
  return value;
}

Result<nlohmann::json> readJsonObject(const std::string &path, uint64_t maximumBytes) {
  LMC_LET(text, readTextFile(path, maximumBytes));
  return parseJsonObject(*text, path);
}

} // namespace lmc
