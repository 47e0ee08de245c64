#include "compiler/report/HintsText.h"

#include "compiler/report/Units.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

using namespace lmc;
using nlohmann::json;

std::string lmc::hintsText(const json &hints) {
  if (hints.empty())
    return "";
  std::string text = "  what would help, each by itself (bytes saved, and bytes then needed):\n";
  bool isEnough = false;
  for (const json &hint : hints) {
    const bool suffices = hint["suffices"];
    text += fmt::format("  {:>14}  {:>10}  {}{}\n",
                        readableBytes(hint["saved_bytes"].get<double>()),
                        readableBytes(hint["peak_bytes"].get<double>()),
                        hint["change"].get<std::string>(), suffices ? ": suffices" : "");
    isEnough |= suffices;
  }
  if (!isEnough)
    text += "  none of these suffices, nor do those on the same devices together\n";
  return text;
}
