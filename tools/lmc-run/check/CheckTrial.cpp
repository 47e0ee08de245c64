#include "tools/lmc-run/check/CheckTrial.h"

#include "ground/support/File.h"
#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/Agree.h"
#include "runtime/folder/RunDirectory.h"
#include "tools/lmc-run/check/CheckFolder.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>

namespace lmc {

namespace {

constexpr uint64_t kSteps = 3;

std::vector<nlohmann::json> readLines(const std::string &path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);)
    if (auto line = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
        line.is_object())
      lines.push_back(std::move(line));
  return lines;
}

Result<TrialOutcome> readOutcome(const std::string &folder, uint64_t lastStep) {
  TrialOutcome outcome;
  for (const nlohmann::json &line : readLines(folder + "/metrics.jsonl"))
    for (const char *name : {"loss", "grad_norm", "update_ratio"})
      outcome.steps[line.value("step", uint64_t{0})][name] =
          line.value(name, nlohmann::json()).dump();
  LMC_LET(contents, readCheckpointContents(fmt::format("{}/checkpoints/{}", folder, lastStep)));
  for (const RecordedFile &file : contents->files)
    outcome.state[std::filesystem::path(file.path).filename().string()] = file.digest.xxh64;
  return outcome;
}

class Trial {
public:
  Trial(const StartFacts &start, bool exports, const Run &run, Findings &findings,
        TrialFigures &figures)
      : start(start), exports(exports), whole(run), world(run.world), findings(findings),
        figures(figures), first(world.rank() == 0),
        nowhere(std::fopen("/dev/null", "w"), &std::fclose), base(run.options) {
    base.output = base.errors = nowhere.get();
    base.timeLimit.reset();
    base.init = start.init;
    base.rewind.reset();
    base.changes.clear();
    base.exportDirectory = base.dumpGradients = base.profile = base.trace = "";
    base.overrides = start.overrides;
    for (const char *own :
         {"checkpoint.interval=0", "checkpoint.keep=1", "checkpoint.export_interval=0"})
      base.overrides.emplace_back(own);
  }

  Result<ExitCode> run(const std::string &place) {
    world.progress().enter(Activity::Starting, start.step);
    LMC_TRY(makeScratch(place));
    const Result<ExitCode> code = runSteps();
    // When this exchange has returned, all ranks have closed their files.
    const Result<void> together = allSucceed(world.all(), Result<void>());
    if (first) {
      lock.reset();
      if (const Result<void> removed = removeTree(scratch); !removed)
        findings.warning("trial", removed.error().message + "; remove it");
    }
    LMC_TRY(together);
    return code;
  }

private:
  Result<void> makeScratch(const std::string &place) {
    LMC_SET(scratch,
            broadcastText(world.all(), fmt::format("{}/{}{}", place, kScratchPrefix, drawRunId())));
    auto make = [&]() -> Result<void> {
      LMC_SET(lock, RunDirectory::open(scratch));
      return {};
    };
    return allSucceed(world.all(), first ? make() : Result<void>());
  }

  // Trains to step `last` in scratch/NAME. If this fails, adds a finding and returns nullopt.
  Result<std::optional<ExitCode>> go(const std::string &name, const std::string &resume,
                                     uint64_t last, bool isLast) {
    RunOptions options = base;
    options.out = scratch + "/" + name;
    options.resume = resume;
    options.steps = static_cast<int64_t>(last);
    if (exports && isLast)
      options.exportDirectory = options.out + "/export";
    // Passes no observer, so that no monitor (such as W&B) shows the trial as a run.
    auto code = train({options, whole.stop, whole.plan, world});
    if (code)
      return std::optional(*code);
    if (code.error().code == ExitCode::RankFailed)
      return code.error();
    std::string text = code.error().message;
    for (size_t at; (at = text.find(scratch)) != std::string::npos;)
      text.replace(at, scratch.size(), "SCRATCH");
    findings.error("trial", text);
    return std::optional<ExitCode>();
  }

  Result<ExitCode> runSteps() {
    const uint64_t steps = std::min(kSteps, start.totalSteps - start.step);
    const uint64_t last = start.step + steps;
    const std::string from = start.checkpoint.value_or("none");
    LMC_LET(straight, go("straight", from, last, /*isLast=*/true));
    if (!*straight || **straight != ExitCode::Success)
      return straight->value_or(ExitCode::Success);
    Result<TrialOutcome> inOneGo = TrialOutcome();
    if (first) {
      inOneGo = readOutcome(scratch + "/straight", last);
      if (inOneGo)
        measure(steps);
    }
    // Only two checkpoints are sure to fit on the disk, so removes files of the first training.
    auto makeRoom = [&]() -> Result<void> {
      if (!first)
        return {};
      LMC_TRY(inOneGo);
      LMC_TRY(makeFolders(scratch + "/resumed"));
      std::error_code failed;
      std::filesystem::copy_file(gemmPath(scratch + "/straight"), gemmPath(scratch + "/resumed"),
                                 failed);
      LMC_TRY(removeTree(scratch + "/straight/export"));
      return removeTree(scratch + "/straight/checkpoints");
    };
    if (const Result<void> made = allSucceed(world.all(), makeRoom()); !made) {
      findings.error("trial", made.error().message);
      return ExitCode::Success;
    }
    if (steps < 2) {
      if (first)
        findings.ok("trial",
                    "the only step of the run was trained; there is none to resume before");
      return ExitCode::Success;
    }
    for (const bool isLast : {false, true}) {
      LMC_LET(code, go("resumed", isLast ? "auto" : from, isLast ? last : last - 1, false));
      if (!*code || **code != ExitCode::Success)
        return code->value_or(ExitCode::Success);
    }
    if (first)
      compare(*inOneGo, last);
    return ExitCode::Success;
  }

  void compare(const TrialOutcome &inOneGo, uint64_t last) {
    const auto resumed = readOutcome(scratch + "/resumed", last);
    if (!resumed)
      return findings.error("trial", resumed.error().message);
    const std::string difference = differenceOf(inOneGo, *resumed);
    if (!difference.empty())
      return findings.error(
          "trial", fmt::format("a resume does not go on bit for bit: {}; try --gemm=default, and "
                               "check this machine's memory and disk if it differs again",
                               difference));
    findings.ok("trial", fmt::format("{} steps in one go, and with a save and a resume before the "
                                     "last one, have equal losses, norms and bits of all state",
                                     figures.steps));
  }

  void measure(uint64_t steps) {
    figures.steps = steps;
    double seconds = 0;
    uint64_t measured = 0;
    for (const nlohmann::json &line : readLines(scratch + "/straight/metrics.jsonl")) {
      const uint64_t step = line.value("step", uint64_t{0});
      const nlohmann::json loss = line.value("loss", nlohmann::json());
      if (line.value("skipped", false) || loss.is_null())
        findings.error("trial",
                       fmt::format("step {} is not finite: its loss is {}, and its gradient "
                                   "norm {}; lower lr_schedule.lr, or check the initial "
                                   "weights",
                                   step, loss.dump(),
                                   line.value("grad_norm", nlohmann::json()).dump()));
      if (step > start.step + 1 || steps == 1) {
        seconds += line.value("step_seconds", 0.0);
        ++measured;
      }
    }
    figures.stepSeconds = measured > 0 ? seconds / double(measured) : 0;
    for (const nlohmann::json &event : readLines(scratch + "/straight/events.jsonl")) {
      const std::string name = event.value("event", "");
      if (name == "checkpoint") {
        figures.saveSeconds = event.value("seconds", 0.0);
        figures.saveBytes = event.value("bytes", uint64_t{0});
      } else if (name == "export") {
        figures.exportSeconds = event.value("seconds", 0.0);
      } else if (name == "validation") {
        figures.validationSeconds[event.value("set", "")] = event.value("seconds", 0.0);
      } else if (name == "warning") {
        const std::string text = event.value("text", "");
        if (text.find(scratch) == std::string::npos)
          findings.warning("trial", text);
      }
    }
  }

  const StartFacts &start;
  const bool exports;
  const Run &whole;
  World &world;
  Findings &findings;
  TrialFigures &figures;
  const bool first;
  std::unique_ptr<FILE, int (*)(FILE *)> nowhere;
  RunOptions base;
  std::string scratch;
  std::unique_ptr<RunDirectory> lock; // of rank 0
};

} // namespace

std::string differenceOf(const TrialOutcome &straight, const TrialOutcome &resumed) {
  for (const auto &[step, values] : straight.steps) {
    const auto other = resumed.steps.find(step);
    if (other == resumed.steps.end())
      return fmt::format("step {} was not trained again", step);
    for (const auto &[name, value] : values)
      if (const auto found = other->second.find(name);
          found == other->second.end() || found->second != value)
        return fmt::format("{} of step {} is {} in one go and {} after the resume", name, step,
                           value, found == other->second.end() ? "missing" : found->second);
  }
  for (const auto &[name, hash] : straight.state) {
    const auto other = resumed.state.find(name);
    if (other == resumed.state.end() || other->second != hash)
      return fmt::format("{} has other bits in one go than after the resume", name);
  }
  return "";
}

Result<ExitCode> runTrial(const std::string &place, const StartFacts &start, bool exports,
                          const Run &run, Findings &findings, TrialFigures &figures) {
  return Trial(start, exports, run, findings, figures).run(place);
}

} // namespace lmc
