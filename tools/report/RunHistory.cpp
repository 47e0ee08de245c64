#include "tools/report/RunHistory.h"

#include "ground/support/File.h"
#include "ground/support/Json.h"
#include "tools/report/Values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <set>
#include <tuple>

using nlohmann::json;

namespace lmc {
namespace {

// The maximum number of steps or tokens. The page's JavaScript has exact integers up to 2^53.
constexpr double kLargest = 9007199254740992;

// Returns the seconds since 1970 for "2026-11-22T13:40:02.125Z"; 0 for a text of another form.
double secondsOf(const std::string &time) {
  std::tm parts{};
  double seconds = 0;
  if (std::sscanf(time.c_str(), "%4d-%2d-%2dT%2d:%2d:%lfZ", &parts.tm_year, &parts.tm_mon,
                  &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &seconds) != 6)
    return 0;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return static_cast<double>(::timegm(&parts)) + seconds;
}

// Returns N of a text that begins with "step N:", as warnings of the guard do.
std::optional<double> stepInText(const std::string &text) {
  long long step = 0;
  char colon = 0;
  if (std::sscanf(text.c_str(), "step %15lld%c", &step, &colon) == 2 && colon == ':' && step >= 0)
    return static_cast<double>(step);
  return std::nullopt;
}

std::string shown(const json &value) {
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

// Returns a text that describes an event, without its time, name and step.
std::string describe(const std::string &kind, const json &event) {
  if (kind == "warning" || kind == "diverged")
    return textAt(event, "text");
  if (kind == "change")
    return fmt::format("{}: {} -> {}", textAt(event, "key"), textAt(event, "from"),
                       textAt(event, "to"));
  if (kind == "exit")
    return fmt::format("exit code {}{}", event.contains("code") ? shown(event["code"]) : "?",
                       textAt(event, "error").empty() ? "" : ": " + textAt(event, "error"));
  std::string text;
  for (const auto &[key, value] : event.items()) {
    if (key == "time" || key == "event" || key == "step" || value.is_structured())
      continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", key, shown(value));
  }
  return text;
}

constexpr size_t kMaxText = 2000; // maximum bytes of the text of an event

} // namespace

RunHistory::RunHistory(const std::string &folder)
    : folder(folder), updates(folder), metricsFile(folder + "/metrics.jsonl"),
      eventsFile(folder + "/events.jsonl"), generatedFile(folder + "/generated.jsonl") {}

Result<RunHistory> RunHistory::open(const std::string &folder) {
  std::error_code failed;
  if (!std::filesystem::is_directory(folder, failed))
    return userError("{}: no such folder; give the folder of a run (lmc-run --out=FOLDER)", folder);
  if (!exists(folder + "/metrics.jsonl"))
    return userError("{}: has no metrics.jsonl; give the folder of a run (lmc-run --out=FOLDER) "
                     "that has begun to train",
                     folder);
  return RunHistory(folder);
}

Result<void> RunHistory::update() {
  LMC_LET(continues, readFiles());
  if (!*continues) {
    RunHistory fresh(folder);
    LMC_TRY(fresh.readFiles());
    // Keeps the values of files that readFiles() does not read, as these files may be unreadable.
    std::tie(fresh.planHash, fresh.target, fresh.host, fresh.version, fresh.settings,
             fresh.evaluations) = std::tie(planHash, target, host, version, settings, evaluations);
    *this = std::move(fresh);
  }
  readEvaluations();
  readIdentity();
  return {};
}

// Reads the lines that were added. Returns false if a file no longer has the lines read before.
Result<bool> RunHistory::readFiles() {
  LMC_LET(metrics, metricsFile.read([this](std::string_view line) { readMetrics(line); }));
  LMC_LET(events, eventsFile.read([this](std::string_view line) { readEvent(line); }));
  LMC_LET(texts, generatedFile.read([this](std::string_view line) { readGenerated(line); }));
  LMC_LET(ratios, updates.update());
  return *metrics && *events && *texts && *ratios;
}

void RunHistory::readMetrics(std::string_view line) {
  auto record = parseJsonObject(line, folder);
  const std::optional<double> step = record ? numberAt(*record, "step") : std::nullopt;
  if (!step || *step != std::floor(*step) || *step <= static_cast<double>(steps) ||
      *step > kLargest) {
    ++damagedMetrics;
    return;
  }
  auto positive = [&](const char *key) {
    return std::max(0.0, numberAt(*record, key).value_or(0));
  };
  const double data = std::min(positive("data_seconds"), positive("step_seconds"));
  const std::array<double, kStepParts.size()> seconds = {positive("step_seconds") - data, data,
                                                         positive("validation_seconds"),
                                                         positive("save_seconds")};
  steps = static_cast<int64_t>(*step);
  end.step = *step;
  end.tokens = std::clamp(positive("tokens"), end.tokens, kLargest);
  for (double part : seconds)
    end.seconds += part;
  lastTime = textAt(*record, "time");
  phase = textAt(*record, "phase");

  if (clockCount++ % clockStride == 0) {
    clock.emplace_back(std::max(secondsOf(lastTime), clock.empty() ? 0 : clock.back().first), end);
    if (clock.size() > 2 * Line::kMaxBuckets) {
      for (size_t i = 0; 2 * i < clock.size(); ++i)
        clock[i] = clock[2 * i];
      clock.resize((clock.size() + 1) / 2);
      clockStride *= 2;
    }
  }

  for (size_t i = 0; i < kDrawnQuantities.size(); ++i)
    if (std::optional<double> value = numberAt(*record, kDrawnQuantities[i]))
      lines[i].add(end, *value);
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    parts[i].add(end, seconds[i]);
    partSeconds[i] += seconds[i];
    addSlow(static_cast<StepPart>(i), *step, seconds[i]);
  }
  stepSeconds.add(positive("step_seconds"));
  computeSeconds.add(seconds[static_cast<size_t>(StepPart::Compute)]);
  tokensPerSecond.add(positive("tokens_per_second"));
  mfu.add(positive("mfu_causal"));

  if (std::optional<double> loss = numberAt(*record, "loss")) {
    lastLoss = LinePoint{end, *loss};
    if (!lowestLoss || *loss < lowestLoss->value)
      lowestLoss = lastLoss;
    lossSum += (*loss - lossSum) / kMeanSteps;
    lossWeight += (1 - lossWeight) / kMeanSteps;
  } else {
    ++nonFinite;
  }
  if (auto it = record->find("skipped"); it != record->end() && *it == true)
    ++skipped;
  if (auto it = record->find("router"); it != record->end())
    routers.add(steps, *it);
  if (auto it = record->find("validation_loss"); it != record->end())
    addValidation("", end, *it);
  if (auto sets = record->find("validation"); sets != record->end() && sets->is_object())
    for (const auto &[name, values] : sets->items())
      if (values.is_object() && values.contains("loss"))
        addValidation(name, end, values["loss"]);
}

void RunHistory::addValidation(const std::string &set, const RunPosition &at, const json &loss) {
  if (!loss.is_number() || !std::isfinite(loss.get<double>()))
    return;
  auto it = validations.find(set);
  if (it == validations.end() && validations.size() == kMaxSets)
    return;
  ValidationLine &validation = validations[set];
  const LinePoint point{at, loss.get<double>()};
  if (validation.line.empty() || point.value < validation.best.value)
    validation.best = point;
  validation.last = point;
  validation.line.add(at, point.value);
}

std::optional<double> RunHistory::meanLoss() const {
  return lossWeight > 0 ? std::optional(lossSum / lossWeight) : std::nullopt;
}

void RunHistory::addSlow(StepPart part, double step, double seconds) {
  std::vector<SlowStep> &slow = slowest[static_cast<size_t>(part)];
  if (seconds <= 0 || (slow.size() == kMaxSlowSteps && seconds <= slow.back().seconds))
    return;
  auto place = std::find_if(slow.begin(), slow.end(),
                            [&](const SlowStep &other) { return other.seconds < seconds; });
  slow.insert(place, {static_cast<int64_t>(step), seconds});
  if (slow.size() > kMaxSlowSteps)
    slow.pop_back();
}

std::vector<SlowStep> RunHistory::slowSteps(StepPart part) const {
  // Most steps have no validation, save or wait for data, so a median of these times would be zero.
  const double usual = part == StepPart::Compute ? computeSeconds.median().value_or(0) : 0;
  const double least = usual + stepSeconds.median().value_or(0) / 2;
  std::vector<SlowStep> result;
  for (const SlowStep &slow : slowest[static_cast<size_t>(part)])
    if (slow.seconds > least)
      result.push_back(slow);
  return result;
}

RunPosition RunHistory::positionOfStep(double step) const {
  auto next = std::partition_point(clock.begin(), clock.end(),
                                   [&](const auto &entry) { return entry.second.step <= step; });
  if (step >= end.step)
    return end;
  const RunPosition from = next == clock.begin() ? RunPosition() : std::prev(next)->second;
  const RunPosition to = next == clock.end() ? end : next->second;
  // Interpolates tokens and seconds linearly between two known positions.
  const double part = to.step > from.step ? (step - from.step) / (to.step - from.step) : 0;
  return {step, from.tokens + part * (to.tokens - from.tokens),
          from.seconds + part * (to.seconds - from.seconds)};
}

RunPosition RunHistory::positionOfTime(double seconds) const {
  if (seconds >= secondsOf(lastTime))
    return end;
  auto next = std::partition_point(clock.begin(), clock.end(),
                                   [&](const auto &entry) { return entry.first <= seconds; });
  return next == clock.begin() ? RunPosition() : std::prev(next)->second;
}

void RunHistory::readEvent(std::string_view line) {
  auto record = parseJsonObject(line, folder);
  if (!record || textAt(*record, "event").empty()) {
    ++damagedEvents;
    return;
  }
  RunEvent event;
  event.kind = textAt(*record, "event").substr(0, 40);
  event.time = textAt(*record, "time").substr(0, 40);
  event.seconds = secondsOf(event.time);
  event.step = numberAt(*record, "step");
  event.text = describe(event.kind, *record).substr(0, kMaxText);
  if (!event.step)
    event.step = stepInText(event.text);
  lastEvent = event.kind;
  ending = event.kind == "exit" ? event.text : "";
  if (event.kind == "warning")
    ++warnings;
  // The run continues after event.step, so events recorded for greater steps no longer count.
  if (event.kind == "start" || event.kind == "rewind") {
    if (event.kind == "start")
      ++starts;
    if (event.step)
      for (auto &[kind, list] : kept)
        for (auto &[number, other] : list)
          if (other.step && *other.step > *event.step)
            other.takenBack = true;
  }
  // Limits the number of kinds of events, because a damaged or hostile file may have any number.
  constexpr size_t kMaxKinds = 64;
  if (!kept.count(event.kind) && kept.size() == kMaxKinds)
    return;
  auto &list = kept[event.kind];
  list.emplace_back(eventNumber++, std::move(event));
  if (list.size() > kMaxEvents)
    list.pop_front();
}

std::vector<const RunEvent *> RunHistory::events() const {
  std::vector<std::pair<int64_t, const RunEvent *>> all;
  for (const auto &[kind, list] : kept)
    for (const auto &[number, event] : list)
      all.emplace_back(number, &event);
  std::sort(all.begin(), all.end());
  std::vector<const RunEvent *> result;
  for (const auto &[number, event] : all)
    result.push_back(event);
  return result;
}

void RunHistory::readGenerated(std::string_view line) {
  constexpr size_t kMaxBytes = 4000; // limit of each prompt and of each text
  const auto record = parseJsonObject(line, "generated.jsonl");
  if (!record)
    return;
  const auto text = [&](const char *key) { return textAt(*record, key).substr(0, kMaxBytes); };
  const auto step = record->find("step");
  if (step == record->end() || !step->is_number_integer())
    return;
  const std::string prompt = text("prompt");
  auto of = std::ranges::find(generated, prompt, &GeneratedTexts::prompt);
  if (of == generated.end()) {
    if (generated.size() == kMaxPrompts)
      return;
    of = generated.insert(generated.end(), GeneratedTexts{prompt, {}});
  }
  of->texts.push_back({step->get<int64_t>(), text("text"), text("end")});
  if (of->texts.size() > kMaxTexts)
    of->texts.pop_front();
}

void RunHistory::readIdentity() {
  identityFault.clear();
  const std::string path = folder + "/run.json";
  if (!exists(path))
    return;
  auto identity = readJsonObject(path, uint64_t{64} << 20);
  if (!identity) {
    identityFault = identity.error().message;
    return;
  }
  planHash = textAt(*identity, "planHash");
  target = textAt(*identity, "target");
  host = textAt(*identity, "host");
  version = textAt(*identity, "runtimeVersion");
  settings.clear();
  auto recorded = identity->find("settings");
  if (recorded == identity->end() || !recorded->is_object())
    return;
  for (const auto &[key, setting] : recorded->items()) {
    if (!setting.is_object())
      continue;
    std::string text = textAt(setting, "value");
    if (auto values = setting.find("values");
        text.empty() && values != setting.end() && values->is_array() && !values->empty())
      text = shown(*values);
    settings[key] = text;
  }
}

// Reads new results, and removes results of steps that a rewind took back. If a folder cannot be
// read, it counts as empty.
void RunHistory::readEvaluations() {
  const std::string parent = folder + "/evaluations";
  std::set<int64_t> found;
  if (const auto names = exists(parent) ? listFolder(parent) : std::vector<std::string>())
    for (const std::string &name : *names) {
      int64_t step = 0;
      const char *end = name.data() + name.size();
      const auto read = std::from_chars(name.data(), end, step);
      if (read.ec == std::errc() && read.ptr == end &&
          exists(fmt::format("{}/{}/{}", parent, name, kEvaluationComplete)))
        found.insert(step);
    }
  while (found.size() > kMaxEvaluations)
    found.erase(found.begin());
  std::erase_if(evaluations, [&](const auto &entry) { return !found.contains(entry.first); });
  for (const int64_t step : found)
    if (!evaluations.contains(step))
      if (auto results = readEvaluation(fmt::format("{}/{}", parent, step)))
        evaluations.emplace(step, std::move(*results));
}

int64_t RunHistory::damaged() const {
  return damagedMetrics + damagedEvents + metricsFile.hasPart() + eventsFile.hasPart() +
         updates.damaged();
}

} // namespace lmc
