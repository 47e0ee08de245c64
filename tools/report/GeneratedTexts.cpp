#include "tools/report/GeneratedTexts.h"

#include "ground/support/Json.h"
#include "tools/report/Values.h"

#include <algorithm>

namespace lmc {

Result<void> GeneratedTexts::update() {
  return file.read([this] { kept.clear(); }, [this](std::string_view line) { read(line); });
}

void GeneratedTexts::read(std::string_view line) {
  const auto json = parseJsonObject(line, "generated.jsonl");
  if (!json)
    return;
  const auto text = [&](const char *key) { return textAt(*json, key).substr(0, kMaxBytes); };
  const auto step = json->find("step");
  if (step == json->end() || !step->is_number_integer())
    return;
  const std::string prompt = text("prompt");
  auto of = std::ranges::find(kept, prompt, &Prompt::prompt);
  if (of == kept.end()) {
    if (kept.size() == kMaxPrompts)
      return;
    of = kept.insert(kept.end(), Prompt{prompt, {}});
  }
  of->texts.push_back({step->get<int64_t>(), text("text"), text("end")});
  if (of->texts.size() > kMaxTexts)
    of->texts.pop_front();
}

} // namespace lmc
