#include "tools/report/Page.h"

#include "ground/support/Number.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

using nlohmann::ordered_json;

namespace lmc {
namespace {

struct PageFile {
  const char *stem, *text;
};
constexpr PageFile kPageFiles[] = {
#include "page.inc"
};

std::string pageFile(std::string_view stem) {
  for (const PageFile &file : kPageFiles)
    if (file.stem == stem)
      return file.text;
  return "";
}

// Returns a number rounded to `digits` significant digits; null if it is not finite.
ordered_json rounded(double value, int digits = 6) {
  if (!std::isfinite(value))
    return nullptr;
  return roundToDigits(value, digits);
}

ordered_json orNull(const std::optional<double> &value, int digits = 6) {
  return value ? rounded(*value, digits) : ordered_json();
}

// Adds the positions of points to `json`, in steps "s", tokens "t" and milliseconds "m". Each
// number is the difference from the previous point's, because differences have fewer digits.
void addPositions(const std::vector<LinePoint> &points, ordered_json &json) {
  int64_t step = 0, tokens = 0, milliseconds = 0;
  ordered_json s = ordered_json::array(), t = s, m = s;
  auto difference = [](double value, int64_t &last) {
    const int64_t now = std::llround(std::min(value, 9e15));
    return now - std::exchange(last, now);
  };
  for (const LinePoint &point : points) {
    s.push_back(difference(point.at.step, step));
    t.push_back(difference(point.at.tokens, tokens));
    m.push_back(difference(point.at.seconds * 1000, milliseconds));
  }
  json["s"] = std::move(s);
  json["t"] = std::move(t);
  json["m"] = std::move(m);
}

ordered_json valuesOf(const std::vector<LinePoint> &points) {
  ordered_json values = ordered_json::array();
  for (const LinePoint &point : points)
    values.push_back(rounded(point.value));
  return values;
}

ordered_json lineJson(const std::vector<LinePoint> &points) {
  ordered_json json;
  addPositions(points, json);
  json["y"] = valuesOf(points);
  return json;
}

ordered_json pointJson(const LinePoint &point) {
  return {{"step", point.at.step}, {"value", rounded(point.value)}};
}

// Returns [step, tokens, milliseconds].
ordered_json positionJson(const RunPosition &at) {
  return {at.step, std::floor(at.tokens), std::floor(at.seconds * 1000)};
}

ordered_json factsJson(const RunHistory &run) {
  ordered_json facts = {{"plan_hash", run.planHash},
                        {"target", run.target},
                        {"host", run.host},
                        {"version", run.version},
                        {"steps", run.steps},
                        {"tokens", run.end.tokens},
                        {"seconds", rounded(run.end.seconds)},
                        {"mean_loss", orNull(run.meanLoss())},
                        {"mean_steps", RunHistory::kMeanSteps},
                        {"median_step_seconds", orNull(run.stepSeconds.median())},
                        {"median_tokens_per_second", orNull(run.tokensPerSecond.median())},
                        {"median_mfu_causal", orNull(run.mfu.median())},
                        {"starts", run.starts},
                        {"warnings", run.warnings},
                        {"non_finite", run.nonFinite},
                        {"skipped", run.skipped},
                        {"damaged", run.damaged()},
                        {"ended", run.hasEnded()},
                        {"ending", run.ending},
                        {"phase", run.phase},
                        {"last_time", run.lastTime},
                        {"identity_fault", run.identityFault}};
  if (run.lastLoss)
    facts["last_loss"] = pointJson(*run.lastLoss);
  if (run.lowestLoss)
    facts["lowest_loss"] = pointJson(*run.lowestLoss);
  facts["validation"] = ordered_json::array();
  for (const auto &[set, validation] : run.validations)
    facts["validation"].push_back(
        {{"set", set}, {"last", pointJson(validation.last)}, {"best", pointJson(validation.best)}});
  return facts;
}

ordered_json eventsJson(const RunHistory &run) {
  ordered_json events = ordered_json::array();
  for (const RunEvent *event : run.events()) {
    // The page shows validations as lines in the loss chart, not as events.
    if (event->kind == "validation")
      continue;
    const RunPosition at =
        event->step ? run.positionOfStep(*event->step) : run.positionOfTime(event->seconds);
    events.push_back({{"kind", event->kind},
                      {"time", event->time},
                      {"step", event->step ? ordered_json(*event->step) : ordered_json()},
                      {"at", positionJson(at)},
                      {"text", event->text},
                      {"taken_back", event->takenBack}});
  }
  return events;
}

ordered_json slowStepsJson(const RunHistory &run) {
  // Leaves out the first step of each start, which includes a warm-up.
  std::set<double> firstSteps = {1};
  for (const RunEvent *event : run.events())
    if (event->kind == "start" && event->step)
      firstSteps.insert(*event->step + 1);
  ordered_json slow = ordered_json::array();
  for (size_t part = 0; part < kStepParts.size(); ++part)
    for (const SlowStep &step : run.slowSteps(static_cast<StepPart>(part)))
      slow.push_back({{"part", kStepParts[part]},
                      {"step", step.step},
                      {"seconds", rounded(step.seconds)},
                      {"first", firstSteps.count(static_cast<double>(step.step)) > 0}});
  return slow;
}

ordered_json generatedJson(const RunHistory &run) {
  ordered_json prompts = ordered_json::array();
  for (const GeneratedTexts &prompt : run.generated) {
    prompts.push_back({{"prompt", prompt.prompt}, {"texts", ordered_json::array()}});
    for (const GeneratedText &text : prompt.texts)
      prompts.back()["texts"].push_back(
          {{"step", text.step}, {"text", text.text}, {"end", text.end}});
  }
  return prompts;
}

ordered_json evaluationsJson(const RunHistory &run) {
  ordered_json evaluations = ordered_json::array();
  for (const auto &[step, results] : run.evaluations) {
    ordered_json values = ordered_json::object();
    for (const auto &[name, value] : results)
      values[name] = rounded(value);
    evaluations.push_back({{"step", step}, {"values", std::move(values)}});
  }
  return evaluations;
}

ordered_json highestJson(const StepSeries &series) {
  if (!series.highest)
    return nullptr;
  return {{"step", series.highest->step}, {"value", rounded(series.highest->value)}};
}

ordered_json groupsJson(const StepSeries &series) {
  ordered_json values = ordered_json::array();
  for (const std::optional<double> &value : series.groups)
    values.push_back(orNull(value, 3));
  return values;
}

ordered_json updatesJson(const TensorUpdates &updates) {
  ordered_json tensors = ordered_json::array();
  for (const TensorUpdates::Tensor &tensor : updates.tensors())
    tensors.push_back({{"name", tensor.name},
                       {"ratio", orNull(tensor.ratio.latest)},
                       {"highest", highestJson(tensor.ratio)},
                       {"first_rms", orNull(tensor.firstRms)},
                       {"last_rms", orNull(tensor.lastRms)},
                       {"ratios", groupsJson(tensor.ratio)}});
  return {{"step", updates.lastStep()},
          {"steps", updates.groupSteps()},
          {"left_out", updates.leftOut()},
          {"tensors", std::move(tensors)}};
}

ordered_json routersJson(const RouterFigures &routers) {
  ordered_json layers = ordered_json::array();
  for (const RouterFigures::Layer *layer : routers.layers())
    layers.push_back({{"layer", layer->number},
                      {"max_load", orNull(layer->maxLoad.latest)},
                      {"min_load", orNull(layer->minLoad)},
                      {"entropy", orNull(layer->entropy)},
                      {"balance_loss", orNull(layer->balanceLoss)},
                      {"late", orNull(layer->late)},
                      {"highest", highestJson(layer->maxLoad)},
                      {"loads", groupsJson(layer->maxLoad)}});
  return {{"step", routers.lastStep()},
          {"steps", routers.groupSteps()},
          {"left_out", routers.leftOut()},
          {"layers", std::move(layers)}};
}

ordered_json runJson(const RunHistory &run, const std::string &name) {
  ordered_json json = {{"name", name}, {"folder", run.folder}, {"facts", factsJson(run)}};
  for (size_t i = 0; i < kDrawnQuantities.size(); ++i)
    json["lines"][kDrawnQuantities[i]] = lineJson(run.lines[i].points());
  json["mean_loss"] = lineJson(run.lines[0].means());
  json["mean_loss"]["size"] = run.lines[0].bucketSize();
  json["validation"] = ordered_json::array();
  for (const auto &[set, validation] : run.validations) {
    json["validation"].push_back(lineJson(validation.line.points()));
    json["validation"].back()["set"] = set;
  }
  addPositions(run.parts[0].means(), json["parts"]);
  for (size_t i = 0; i < kStepParts.size(); ++i) {
    json["parts"][kStepParts[i]] = valuesOf(run.parts[i].means());
    json["part_seconds"][kStepParts[i]] = rounded(run.partSeconds[i]);
  }
  json["slow"] = slowStepsJson(run);
  json["events"] = eventsJson(run);
  json["generated"] = generatedJson(run);
  json["evaluations"] = evaluationsJson(run);
  json["updates"] = updatesJson(run.updates);
  json["routers"] = routersJson(run.routers);
  return json;
}

// Returns a name for each run: the last part of its path or, if runs share that, the whole path.
std::vector<std::string> namesOf(const std::vector<RunHistory> &runs) {
  std::vector<std::string> names;
  for (const RunHistory &run : runs) {
    std::error_code failed;
    std::filesystem::path path = std::filesystem::absolute(run.folder, failed).lexically_normal();
    if (!path.has_filename())
      path = path.parent_path();
    names.push_back(path.filename().string());
  }
  const std::vector<std::string> shortNames = names;
  for (size_t i = 0; i < names.size(); ++i) {
    if (std::count(shortNames.begin(), shortNames.end(), shortNames[i]) > 1)
      names[i] = runs[i].folder;
    for (int copy = 2; std::count(names.begin(), names.begin() + ptrdiff_t(i), names[i]); ++copy)
      names[i] = fmt::format("{} ({})", runs[i].folder, copy);
  }
  return names;
}

// Returns the settings that differ between the runs that have recorded their settings.
ordered_json differencesJson(const std::vector<RunHistory> &runs) {
  std::set<std::string> keys;
  for (const RunHistory &run : runs)
    for (const auto &[key, value] : run.settings)
      keys.insert(key);
  ordered_json differences = ordered_json::array();
  for (const std::string &key : keys) {
    std::set<std::string> distinct;
    ordered_json values = ordered_json::array();
    for (const RunHistory &run : runs) {
      auto it = run.settings.find(key);
      const std::string value = it == run.settings.end() ? "" : it->second;
      if (!run.settings.empty())
        distinct.insert(value);
      values.push_back(value);
    }
    if (distinct.size() > 1)
      differences.push_back({{"key", key}, {"values", std::move(values)}});
  }
  return differences;
}

// Returns JSON for a <script> element, in which no text can end the element.
std::string scriptText(const ordered_json &json) {
  std::string text;
  for (char c : json.dump(-1, ' ', false, ordered_json::error_handler_t::replace)) {
    if (c == '<')
      text += "\\u003c"; // '<' is only inside strings of JSON, so it can be escaped
    else
      text += c;
  }
  return text;
}

} // namespace

std::string reportPage(const std::vector<RunHistory> &runs,
                       const std::vector<PublishedCurve> &curves, const PageOptions &options) {
  ordered_json data = {{"by", options.by},
                       {"written_at", options.writtenAt},
                       {"reload_seconds", options.reloadSeconds},
                       {"step_parts", kStepParts},
                       {"most_events", RunHistory::kMaxEvents},
                       {"runs", ordered_json::array()},
                       {"curves", ordered_json::array()},
                       {"differences", differencesJson(runs)}};
  const std::vector<std::string> names = namesOf(runs);
  for (size_t i = 0; i < runs.size(); ++i)
    data["runs"].push_back(runJson(runs[i], names[i]));
  for (const PublishedCurve &curve : curves) {
    data["curves"].push_back(lineJson(curve.line.points()));
    data["curves"].back()["name"] = curve.name;
  }
  // Divides the template before texts are inserted, so that no text can act as a placeholder.
  std::string page;
  const std::string text = pageFile("page");
  std::string_view rest = text;
  for (const auto &[mark, content] :
       {std::pair<std::string_view, std::string>("@STYLE@", pageFile("style")),
        {"@DATA@", scriptText(data)},
        {"@SCRIPT@", pageFile("script")}}) {
    const size_t at = rest.find(mark);
    page += rest.substr(0, at);
    page += content;
    rest.remove_prefix(at + mark.size());
  }
  page += rest;
  return page;
}

} // namespace lmc
