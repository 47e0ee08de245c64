#include "tools/report/GeneratedTexts.h"

#include "ground/support/Json.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace lmc {

Result<void> GeneratedTexts::update() {
  return file.read([this] { kept.clear(); }, [this](std::string_view line) { read(line); });
}

void GeneratedTexts::read(std::string_view line) {
  const auto json = parseJsonObject(line, "generated.jsonl");
  if (!json)
    return;
  const auto textAt = [&](const char *key) {
    const auto found = json->find(key);
    return found != json->end() && found->is_string()
               ? found->get<std::string>().substr(0, kMaxBytes)
               : "";
  };
  const auto step = json->find("step");
  if (step == json->end() || !step->is_number_integer())
    return;
  const std::string prompt = textAt("prompt");
  auto of = std::ranges::find(kept, prompt, &Prompt::prompt);
  if (of == kept.end()) {
    if (kept.size() == kMaxPrompts)
      return;
    of = kept.insert(kept.end(), Prompt{prompt, {}});
  }
  of->texts.push_back({step->get<int64_t>(), textAt("text"), textAt("end")});
  if (of->texts.size() > kMaxTexts)
    of->texts.pop_front();
}

} // namespace lmc
