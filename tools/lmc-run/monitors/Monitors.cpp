#include "tools/lmc-run/monitors/Monitors.h"

#include "ground/support/Size.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <utility>

namespace lmc {

Monitors::Monitors(const MonitoringConfig &settings, const std::string &exportCommand,
                   const std::string &out, Console &console, RunLog &log, const MonitorClock &clock)
    : console(console), log(log) {
  // Makes the path absolute, because commands may change to another folder.
  std::error_code failed;
  const std::filesystem::path folder = std::filesystem::absolute(out, failed).lexically_normal();
  if (settings.tensorboard)
    tensorboard.emplace((folder / "tensorboard").string(), clock);
  if (!settings.prometheus.empty())
    prometheus.emplace((folder / settings.prometheus).string(), folder.string());
  if (!settings.onEvent.empty())
    onEvent.emplace(settings.onEvent, folder.string());
  if (!exportCommand.empty())
    onExport.emplace(exportCommand, folder.string());
  if (!settings.wandbProject.empty())
    wandb.emplace(settings, folder.string(), clock);
  log.listen(
      [this](const std::string &name, const nlohmann::ordered_json &json) { event(name, json); });
}

Monitors::~Monitors() { log.listen(nullptr); }

void Monitors::check(const Result<void> &attempt, const char *key) {
  // `failing` must change first: the warning is an event, and the event calls this function again.
  if (attempt)
    failing.erase(key);
  else if (failing.insert(key).second)
    console.warning(fmt::format("{}: {}; the run goes on", key, attempt.error().message));
}

void Monitors::step(const StepRecord &record, int64_t logInterval) {
  const RunLog::Lock lock = log.lock();
  latestStep = record.step;
  if (tensorboard) {
    check(tensorboard->write(record), "monitoring.tensorboard");
    if (tensorboard->hasDropped() && !std::exchange(dropping, true))
      console.warning(fmt::format("monitoring.tensorboard: the oldest steps that could not be "
                                  "written are lost to it: {} of them are kept in memory; "
                                  "metrics.jsonl has all steps",
                                  formatBytes(TensorBoardWriter::kMostWaiting)));
    dropping = tensorboard->hasDropped();
  }
  if (prometheus) {
    prometheus->step(record);
    if (!sawStep || record.step % logInterval == 0)
      check(prometheus->write(), "monitoring.prometheus");
  }
  // Looks for exports only now, as a start with --rewind first moves exports of later steps away.
  if (!sawStep && onExport)
    check(onExport->find(), "checkpoint.export_command");
  sawStep = true;
  poll();
}

void Monitors::generated(int64_t step, const std::vector<GeneratedText> &texts) {
  const RunLog::Lock lock = log.lock();
  if (tensorboard)
    check(tensorboard->write(step, texts), "monitoring.tensorboard");
}

void Monitors::updated(const StepUpdates &updates) {
  const RunLog::Lock lock = log.lock();
  if (tensorboard)
    check(tensorboard->write(updates), "monitoring.tensorboard");
}

void Monitors::poll() {
  if (onExport)
    pollExports();
  if (onEvent)
    if (auto started = onEvent->poll(); !started)
      check(started, "monitoring.on_event");
  if (wandb) {
    const Result<bool> works = wandb->poll();
    if (!works)
      check(works.error(), "monitoring.wandb_project");
    else if (*works)
      failing.erase("monitoring.wandb_project");
  }
}

void Monitors::pollExports() {
  const auto ended = onExport->poll();
  check(ended ? Result<void>() : Result<void>(ended.error()), "checkpoint.export_command");
  if (!ended || !*ended)
    return;
  const ExportCommand::Outcome &outcome = **ended;
  if (outcome.code != 0) {
    console.warning(fmt::format("checkpoint.export_command: the command for the export of step {} "
                                "ended with exit code {} (evaluations/{}/output.log); the next "
                                "start of the run tries it again",
                                outcome.step, outcome.code, outcome.step));
    log.event("evaluation_failed", {{"step", outcome.step}, {"code", outcome.code}});
    return;
  }
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const auto &[key, value] : outcome.results)
    values[key] = value;
  log.event("evaluation", {{"step", outcome.step}, {"values", std::move(values)}});
  if (tensorboard && !outcome.results.empty())
    check(tensorboard->write(outcome.step, outcome.results), "monitoring.tensorboard");
}

void Monitors::event(const std::string &name, const nlohmann::ordered_json &event) {
  if (prometheus) {
    prometheus->event(name, event);
    if (name == "checkpoint" || name == "exit")
      check(prometheus->write(), "monitoring.prometheus");
  }
  const int64_t step = integerOf(event, "step", latestStep);
  latestStep = std::max(latestStep, step);
  if (onExport && name == "export") {
    onExport->add(step);
    pollExports();
  }
  if (onExport && name == "exit")
    if (const std::vector<int64_t> open = onExport->open(); !open.empty())
      console.note(fmt::format("checkpoint.export_command: not yet complete for the exports of {} "
                               "step(s): {}; what runs goes on, and a later start of the run does "
                               "the rest",
                               open.size(), fmt::join(open, ", ")));
  if (onEvent) {
    const auto replace = nlohmann::ordered_json::error_handler_t::replace;
    check(onEvent->run(name, step, event.dump(-1, ' ', false, replace)), "monitoring.on_event");
  }
}

} // namespace lmc
