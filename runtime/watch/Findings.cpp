#include "runtime/watch/Findings.h"

#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace lmc {

static const char *nameOf(Severity severity) {
  static constexpr std::array<const char *, 4> names = {"ok", "warning", "error", "skipped"};
  return names[static_cast<size_t>(severity)];
}

void Findings::add(Finding finding) {
  for (const Finding &known : list)
    if (known.severity == finding.severity && known.text.ends_with(finding.text))
      return;
  list.push_back(std::move(finding));
}

void Findings::ok(const std::string &check, const std::string &text) {
  add({check, Severity::Ok, text});
}
void Findings::warning(const std::string &check, const std::string &text) {
  add({check, Severity::Warning, text});
}
void Findings::error(const std::string &check, const std::string &text) {
  add({check, Severity::Error, text});
}

bool Findings::has(Severity severity) const {
  return std::ranges::any_of(list, [&](const Finding &each) { return each.severity == severity; });
}

ExitCode Findings::code() const {
  if (!has(Severity::Error))
    return ExitCode::Success;
  const bool onlySize = std::ranges::all_of(list, [](const Finding &finding) {
    return finding.severity != Severity::Error || finding.doesNotFit;
  });
  return onlySize ? ExitCode::DoesNotFit : ExitCode::UserError;
}

Result<void> Findings::share(Communicator &group) {
  if (group.size() == 1)
    return {};
  nlohmann::json mine = nlohmann::json::array();
  for (const Finding &finding : list)
    if (finding.severity != Severity::Ok)
      mine.push_back(
          {finding.check, static_cast<int>(finding.severity), finding.text, finding.doesNotFit});
  const std::string text =
      mine.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); // paths may not be UTF-8
  LMC_LET(texts, gatherTexts(group, text));
  for (size_t rank = 0; rank < texts->size(); ++rank) {
    if (static_cast<int>(rank) == group.position())
      continue;
    for (const auto &each : nlohmann::json::parse((*texts)[rank])) {
      const auto severity = static_cast<Severity>(each[1].get<int>());
      const std::string what = each[2];
      const bool isKnown = std::ranges::any_of(list, [&](const Finding &known) {
        return known.severity == severity &&
               (known.text.ends_with(what) || what.ends_with(known.text));
      });
      if (!isKnown)
        add({each[0], severity, rank == 0 ? what : fmt::format("rank {}: {}", rank, what),
             each[3]});
    }
  }
  return {};
}

std::string Findings::table() const {
  std::string text;
  size_t errors = 0, warnings = 0;
  for (const Finding &finding : list) {
    text +=
        fmt::format("  {:<7}  {:<6}  {}\n", nameOf(finding.severity), finding.check, finding.text);
    errors += finding.severity == Severity::Error;
    warnings += finding.severity == Severity::Warning;
  }
  return text + fmt::format("check: {} error(s), {} warning(s){}\n", errors, warnings,
                            errors > 0 ? ": the run is not ready" : "");
}

nlohmann::ordered_json Findings::json() const {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Finding &finding : list)
    json.push_back(
        {{"check", finding.check}, {"level", nameOf(finding.severity)}, {"text", finding.text}});
  return json;
}

} // namespace lmc
