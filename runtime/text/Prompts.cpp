#include "runtime/text/Prompts.h"

#include "corpus/tokenizer/unicode/Utf8.h"
#include "ground/support/File.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <string_view>

namespace lmc {

static constexpr uint64_t kMaximumBytes = 64 << 20;

Result<std::vector<Prompt>> readPrompts(const std::string &path) {
  auto read = readTextFile(path, kMaximumBytes);
  if (!read)
    return Error{"generation.prompts: " + read.error().message, read.error().code};
  const bool isJson = path.ends_with(".jsonl");
  std::vector<Prompt> prompts;
  std::string_view rest = *read;
  for (uint64_t line = 1; !rest.empty(); ++line) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (text.ends_with('\r'))
      text.remove_suffix(1);
    if (text.empty())
      continue;
    if (replaceInvalidUtf8(text) != text)
      return Error{fmt::format("{}:{}: not valid UTF-8", path, line)};
    if (!isJson) {
      prompts.push_back({line, std::string(text)});
      continue;
    }
    const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    const auto prompt = json.is_object() ? json.find("prompt") : json.end();
    if (!json.is_object() || prompt == json.end() || !prompt->is_string())
      return Error{fmt::format("{}:{}: expected an object {{\"prompt\": TEXT}}", path, line)};
    prompts.push_back({line, prompt->get<std::string>()});
  }
  if (prompts.empty())
    return Error{fmt::format("{}: has no prompt", path)};
  return prompts;
}

} // namespace lmc
