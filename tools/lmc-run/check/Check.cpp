#include "tools/lmc-run/check/Check.h"

#include "ground/plan/PlannedBytes.h"
#include "ground/plan/Steps.h"
#include "ground/plan/TargetRules.h"
#include "ground/support/File.h"
#include "ground/support/Size.h"
#include "runtime/comm/Agree.h"
#include "runtime/device/cpu/FreeMemory.h"
#include "runtime/folder/RunDirectory.h"
#include "runtime/loop/CheckData.h"
#include "runtime/watch/DiskSpace.h"
#include "tools/lmc-run/check/CheckFolder.h"
#include "tools/lmc-run/check/CheckTrial.h"
#include "tools/lmc-run/check/Preflight.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdlib>

namespace lmc {

namespace {

// About this number of tokens per parameter is compute-optimal (Hoffmann et al., arXiv 2203.15556).
constexpr double kChinchillaTokens = 20;

// A stream from which the written text can be read.
class TextStream {
public:
  TextStream() : file(::open_memstream(&data, &size)) {}
  ~TextStream() {
    std::fclose(file);
    std::free(data);
  }
  TextStream(const TextStream &) = delete;
  TextStream &operator=(const TextStream &) = delete;
  FILE *stream() { return file; }
  std::string text() {
    std::fflush(file);
    return {data, size};
  }

private:
  char *data = nullptr;
  size_t size = 0;
  FILE *file;
};

std::string hoursText(double seconds) {
  return seconds < 3600 ? fmt::format("{:.3g} seconds", seconds)
                        : fmt::format("{:.4g} hours", seconds / 3600);
}

class Check {
public:
  Check(const Run &whole, const ProgramOptions &options)
      : whole(whole), plan(whole.plan), world(whole.world), options(options),
        first(world.rank() == 0) {}

  Result<ExitCode> run() {
    world.progress().enter(Activity::Starting, 0);
    if (first)
      checkFolder(options.out, findings);
    Findings ofStart;
    LMC_TRY(prepareStart(ofStart));
    if (const auto *warnings = plan->warnings(); warnings && first)
      for (const flatbuffers::String *warning : *warnings)
        ofStart.warning("job", warning->str());
    // Adds the findings about data before those of `ofStart`: add() skips a finding whose text ends
    // the text of an earlier finding of the same severity.
    checkData(plan, overrides(), world, findings);
    for (const Finding &finding : ofStart.all())
      findings.add(finding);
    if (first)
      checkCheckpoints(options.out, start ? start->checkpoint : std::nullopt, findings);
    checkDisk();
    checkMemory();
    if (world.size() > 1)
      LMC_TRY(checkLinks());
    LMC_TRY(findings.share(world.all()));
    LMC_LET(stopped, anyOf(world.all(), whole.stop.requested()));
    if (*stopped)
      return ExitCode::Interrupted;
    if (start && !findings.has(Severity::Error) && start->step < start->totalSteps) {
      LMC_LET(tried, runTrial(nearestFolder(options.out), startOfTrial(), disk.exports > 0, whole,
                              findings, figures));
      if (*tried == ExitCode::Interrupted)
        return *tried;
      LMC_TRY(findings.share(world.all()));
    } else if (start && start->step >= start->totalSteps) {
      findings.ok("trial", fmt::format("nothing to train: step {} of {} is done", start->step,
                                       start->totalSteps));
    } else {
      findings.add(
          {"trial", Severity::Skipped, "no step was trained, because of the errors above"});
    }
    if (first) {
      addTotals();
      print();
    }
    // All ranks return rank 0's exit code.
    LMC_LET(code, sumOf(world.all(), first ? static_cast<int>(findings.code()) : 0));
    return static_cast<ExitCode>(*code);
  }

private:
  const std::vector<std::string> &overrides() const {
    return start ? start->overrides : options.overrides;
  }

  Result<void> prepareStart(Findings &found) {
    TextStream notes, warnings;
    {
      Console console(notes.stream(), warnings.stream());
      auto looked = lookAtStart(whole, console);
      if (looked)
        start = std::move(*looked);
      else if (looked.error().code == ExitCode::RankFailed)
        return looked.error();
      else
        found.error("job", looked.error().message);
    }
    constexpr std::string_view kPrefix = "warning: ";
    const std::string text = warnings.text();
    for (size_t at = 0, end; at < text.size(); at = end + 1) {
      end = std::min(text.find('\n', at), text.size());
      std::string line = text.substr(at, end - at);
      if (line.starts_with(kPrefix))
        line.erase(0, kPrefix.size());
      if (!line.empty())
        found.warning("job", line);
    }
    if (start)
      found.ok("job", start->checkpoint
                          ? fmt::format("the run goes on after step {} of {}, from {}", start->step,
                                        start->totalSteps, *start->checkpoint)
                      : start->init.empty()
                          ? fmt::format("the run begins with new weights, and has {} steps",
                                        start->totalSteps)
                          : fmt::format("the run begins with the weights of {}, and has {} steps",
                                        start->init, start->totalSteps));
    return {};
  }

  // Returns the session of a phase; null if it cannot be opened.
  std::unique_ptr<Session> sessionOf(size_t phase) const {
    auto session = Session::open(plan, phase, overrides(), world);
    return session ? std::move(*session) : nullptr;
  }

  // Returns a copy of `start` in which each validation has only one global batch.
  StartFacts startOfTrial() const {
    StartFacts trial = *start;
    const size_t phase = phaseAt(trial.phases, trial.step, /*isDone=*/false);
    if (const std::unique_ptr<Session> session = sessionOf(phase))
      for (const ValidationSettings &set : session->settings.validations)
        trial.overrides.push_back(set.name.empty()
                                      ? "monitoring.validation_iters=1"
                                      : fmt::format("{}.{}.iters=1", kValidationSets, set.name));
    return trial;
  }

  void checkDisk() {
    const uint64_t step = start ? start->step : 0;
    const size_t phase = start ? phaseAt(start->phases, step, /*isDone=*/false) : 0;
    const std::unique_ptr<Session> session = sessionOf(phase);
    if (!session)
      return;
    const uint64_t total = start ? start->totalSteps
                                 : static_cast<uint64_t>(std::max<int64_t>(
                                       session->settings.config.training.trainIters, 0));
    const auto phases = start ? start->phases : phasesOf(plan, total);
    const auto need = diskNeed(*session, options, phases, step, total);
    const std::string place = nearestFolder(options.out + "/checkpoints");
    const auto free = freeBytes(place);
    if (!need || !free)
      return findings.error("disk", need ? free.error().message : need.error().message);
    disk = *need;
    if (first)
      findings.add(judgeDisk(*need, *free, place));
  }

  // Checks the memory of the host. The trial checks a GPU's arenas when it opens the device.
  void checkMemory() {
    const auto perNode = static_cast<int>(plan->devices_per_node());
    if (!plan::computesOnHost(*plan) || world.rank() % perNode != 0)
      return;
    uint64_t most = 0;
    for (size_t phase = 0; phase < std::max<size_t>(plan.phases().size(), 1); ++phase)
      most = std::max(most, plannedBytes(*plan.phasePlan(phase)));
    const uint64_t need =
        most > UINT64_MAX / uint64_t(perNode) ? UINT64_MAX : most * uint64_t(perNode);
    const cpu::FreeMemory free = cpu::freeMemory();
    const std::string host = world.hostOf(world.rank());
    const std::string text = fmt::format(
        "{}the plan needs {}{}, and {} are free ({})", host.empty() ? "" : host + ": ",
        formatBytes(need),
        perNode > 1 ? fmt::format(" for {} ranks of a machine", perNode) : std::string(),
        formatBytes(free.bytes), free.source);
    // Besides the arenas, the run needs memory for batches, buffers of files and the programs.
    if (need > free.bytes)
      findings.add({"memory", Severity::Error,
                    text + ": end other programs, or compile with a smaller memory_budget or "
                           "micro_batch_size",
                    true});
    else if (need > free.bytes / 10 * 9)
      findings.warning("memory", text + ": little is left for batches and for other programs");
    else
      findings.ok("memory", text);
  }

  Result<void> checkLinks() {
    TextStream text, errors;
    ProgramOptions own = options;
    own.json = true;
    own.output = text.stream();
    own.errors = errors.stream();
    LMC_LET(code, preflight(plan, world, own));
    if (!first)
      return {};
    links = nlohmann::ordered_json::parse(text.text(), nullptr, /*allow_exceptions=*/false);
    for (const auto &slow : links["slow"])
      findings.warning("links", slow["text"].get<std::string>());
    for (const auto &link : links["links"]) {
      auto speed = [](const nlohmann::ordered_json &of) {
        return fmt::format("{:.3g} us and {:.4g} MB/s", of["latency_seconds"].get<double>() * 1e6,
                           of["bandwidth"].get<double>() / 1e6);
      };
      const auto &assumed = link["assumed"];
      findings.ok("links", fmt::format("{}, {} of {} ranks: {}{}", link["name"].get<std::string>(),
                                       link["count"].get<int>(), link["ranks"].get<int>(),
                                       speed(link["measured"]),
                                       assumed.is_null() || !plan::computesOnHost(*plan)
                                           ? ""
                                           : "; the plan assumed " + speed(assumed)));
    }
    return {};
  }

  // Returns the predicted seconds of a step of a phase; 0: there is no prediction.
  double predicted(size_t phase) const {
    return plan::predictedStepSeconds(*plan.phasePlan(phase));
  }

  // Returns the seconds of all remaining steps. `ofStep(phase)` returns the seconds of one step.
  template <typename OfStep> double secondsOfSteps(const OfStep &ofStep) const {
    double seconds = 0;
    for (const RunPhase &phase : start->phases) {
      const uint64_t from = std::max(phase.firstStep, start->step);
      if (phase.lastStep > from)
        seconds += double(phase.lastStep - from) * ofStep(phase.index);
    }
    return seconds;
  }

  // Returns the seconds of all remaining validations.
  double secondsOfValidations(const Session &session) const {
    double seconds = 0;
    for (const ValidationSettings &set : session.settings.validations) {
      const auto measured = figures.validationSeconds.find(set.name);
      if (measured == figures.validationSeconds.end())
        continue;
      double batches = double(set.iters);
      if (const auto data = session.openValidationData(set)) {
        const double all = double((*data)->samplesPerEpoch()) /
                           double((*session.plan)->batch()->global_batch_size());
        batches = set.iters == 0 ? all : std::min(all, batches);
      }
      uint64_t times = 1; // at the end
      if (set.interval > 0)
        times +=
            (start->totalSteps - 1) / uint64_t(set.interval) - start->step / uint64_t(set.interval);
      seconds += measured->second * std::max(batches, 1.0) * double(times);
    }
    return seconds;
  }

  void addTotals() {
    if (!start)
      return;
    for (const std::string &line : start->job)
      findings.ok("totals", line);
    double tokens = 0;
    for (const RunPhase &phase : start->phases) {
      const auto &batch = *plan.phasePlan(phase.index)->batch();
      tokens += double(phase.lastStep - phase.firstStep) *
                double(batch.global_batch_size() * batch.sequence_length());
    }
    const double perParameter = tokens / double(plan->model()->parameters());
    findings.ok("totals", fmt::format("{:.3g} tokens per parameter; Chinchilla's compute-optimal "
                                      "number is about {} (arXiv 2203.15556)",
                                      perParameter, kChinchillaTokens));
    totals = {{"steps", start->totalSteps},
              {"steps_done", start->step},
              {"tokens", tokens},
              {"tokens_per_parameter", perParameter}};
    if (figures.stepSeconds > 0)
      addTimes();
  }

  void addTimes() {
    const size_t now = phaseAt(start->phases, start->step, /*isDone=*/false);
    const std::unique_ptr<Session> session = sessionOf(now);
    if (!session)
      return;
    // Assumes the same ratio of measured to predicted step time in all phases.
    const double ratio = predicted(now) > 0 ? figures.stepSeconds / predicted(now) : 0;
    const double steps = secondsOfSteps([&](size_t phase) {
      return ratio > 0 && predicted(phase) > 0 ? ratio * predicted(phase) : figures.stepSeconds;
    });
    const double saves = double(disk.saves) * figures.saveSeconds;
    const double exported = double(disk.exports) * figures.exportSeconds;
    const double validated = secondsOfValidations(*session);
    const double all = steps + saves + exported + validated;
    const bool onHost = plan::computesOnHost(*plan);
    const double ranks = double(world.size());
    findings.ok("totals",
                fmt::format("{:.4g} s per step{}; {} for the steps to come{}, {:.4g} {} in all",
                            figures.stepSeconds,
                            ratio > 0 ? fmt::format(", {:.2f} times the plan's {:.4g} s", ratio,
                                                    predicted(now))
                                      : std::string(),
                            hoursText(all),
                            ratio > 0 ? fmt::format(" ({} by the plan)",
                                                    hoursText(secondsOfSteps([&](size_t phase) {
                                                      return predicted(phase);
                                                    })))
                                      : std::string(),
                            all / 3600 * ranks, onHost ? "CPU-hours (of ranks)" : "GPU-hours"));
    findings.ok("totals",
                fmt::format("{} save(s) of {} in {:.3g} s each, {} export(s) in {:.3g} s each: "
                            "{:.2f}% and {:.2f}% of the time; validation: {:.2f}%",
                            disk.saves, formatBytes(figures.saveBytes), figures.saveSeconds,
                            disk.exports, figures.exportSeconds, 100 * saves / all,
                            100 * exported / all, 100 * validated / all));
    totals.update({{"step_seconds", figures.stepSeconds},
                   {"predicted_step_seconds",
                    predicted(now) > 0 ? nlohmann::ordered_json(predicted(now)) : nullptr},
                   {"seconds", all},
                   {"hours", all / 3600},
                   {onHost ? "cpu_hours" : "gpu_hours", all / 3600 * ranks},
                   {"saves", disk.saves},
                   {"save_seconds", figures.saveSeconds},
                   {"save_bytes", figures.saveBytes},
                   {"save_share", saves / all},
                   {"exports", disk.exports},
                   {"export_seconds", figures.exportSeconds},
                   {"export_share", exported / all},
                   {"validation_share", validated / all}});
  }

  void print() {
    std::string text;
    if (options.json) {
      const nlohmann::ordered_json report = {{"plan", plan.path()},
                                             {"plan_hash", plan.hash()},
                                             {"out", options.out},
                                             {"ranks", world.size()},
                                             {"code", static_cast<int>(findings.code())},
                                             {"findings", findings.json()},
                                             {"totals", totals},
                                             {"preflight", links}};
      text = report.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
    } else {
      text = fmt::format("check of {} in {}, {} rank(s)\n{}", plan.path(), options.out,
                         world.size(), findings.table());
    }
    std::fputs(text.c_str(), options.output);
    std::fflush(options.output);
  }

  const Run &whole;
  const PlanFile &plan;
  World &world;
  const ProgramOptions &options;
  const bool first;
  Findings findings;
  std::optional<StartFacts> start; // nullopt: the run cannot start
  DiskNeed disk;
  TrialFigures figures;
  nlohmann::ordered_json totals, links;
};

} // namespace

Result<ExitCode> check(const Run &run, const ProgramOptions &options) {
  return Check(run, options).run();
}

} // namespace lmc
