#include "runtime/settings/Settings.h"

#include "ground/plan/Names.h"
#include "ground/settings/SettingTable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

namespace lmc {

static std::vector<SourceOptions> trainDataOf(const RunSettings &settings) {
  const DataConfig &data = settings.config.data;
  const std::vector<std::string> names = settings.table.tablesOf(kSources);
  std::vector<SourceOptions> sources;
  if (names.empty() && !data.train.empty())
    sources.push_back({.name = "", .key = kTrainData, .paths = data.train});
  for (const auto &[name, source] : data.sources)
    if (std::ranges::find(names, name) != names.end())
      sources.push_back({name, fmt::format("{}.{}.paths", kSources, name), source.paths,
                         source.weight, source.maxEpochs});
  return sources;
}

static std::vector<ValidationSettings> validationsOf(const RunSettings &settings) {
  const Config &config = settings.config;
  const std::vector<std::string> names = settings.table.tablesOf(kValidationSets);
  std::vector<ValidationSettings> sets;
  if (names.empty() && !config.data.validation.empty())
    sets.push_back({"", kValidationData, config.data.validation,
                    config.monitoring.validationInterval, config.monitoring.validationIters});
  for (const auto &[name, set] : config.validations)
    if (std::ranges::find(names, name) != names.end())
      sets.push_back({name, fmt::format("{}.{}.paths", kValidationSets, name), set.paths,
                      set.interval, set.iters});
  return sets;
}

// Removes the sources that the phase does not read, and sets the weights that the phase gives to
// the others. SettingRules.h has checked the names.
static Result<void> enterPhaseData(const PhaseConfig &phase, std::vector<SourceOptions> &sources) {
  if (phase.sources.empty())
    return {};
  std::map<std::string, std::optional<double>> weights;
  for (const std::string &text : phase.sources) {
    LMC_LET(source, parsePhaseSource(text));
    weights.emplace(source->name, source->weight);
  }
  std::erase_if(sources, [&](const SourceOptions &source) { return !weights.count(source.name); });
  for (SourceOptions &source : sources)
    source.weight = weights[source.name].value_or(source.weight);
  return {};
}

// Sets the phase's data and, if the phase has a schedule of its own, this schedule.
static Result<void> enterPhase(const RunSettings &from, const PlanFile::Phase &phase,
                               TrainSettings &settings) {
  const auto &phases = from.config.phases;
  const auto found = std::ranges::find(phases, phase.name, &PhaseConfig::name);
  if (found == phases.end())
    return userError("the plan has no settings of its phase '{}'", phase.name);
  if (found->lrStyle != "continue") {
    LrKeys keys = phaseLrKeys(from.config, from.table, *found);
    keys.restartStep = static_cast<int64_t>(phase.firstStep);
    settings.lr = lrSettings(keys, static_cast<int64_t>(phase.firstStep + phase.steps));
  }
  return enterPhaseData(*found, settings.trainData);
}

Result<TrainSettings> TrainSettings::make(const RunSettings &from, const PlanFile::Phase *phase) {
  TrainSettings settings;
  for (const SettingFault &fault : settingFaults(from.config, from.table)) {
    if (!fault.isWarning)
      return userError("{}; --set {}=... changes it", fault.named(), fault.key);
    settings.warnings.push_back(fault.named());
  }
  settings.config = from.config;
  const Config &config = settings.config;
  settings.lr = lrSettings(lrKeys(config, from.table), config.training.trainIters);
  if (config.optimizer.type == "muon" && config.optimizer.muonLr > 0)
    settings.muonRate = config.optimizer.muonLr / config.lrSchedule.lr;
  settings.trainData = trainDataOf(from);
  settings.validations = validationsOf(from);
  if (phase)
    LMC_TRY(enterPhase(from, *phase, settings));
  settings.checkpointInterval = config.checkpoint.interval;
  LMC_SET(settings.skipSteps, readStepRanges(config.guard.skipSteps));
  return settings;
}

AdamWStep adamWStep(const TrainSettings &settings, int64_t number, double lr) {
  const auto steps = static_cast<double>(number);
  const OptimizerConfig &optimizer = settings.config.optimizer;
  return {.number = number,
          .lr = lr,
          .correction1 = 1.0 - std::pow(optimizer.beta1, steps),
          .correction2 = 1.0 - std::pow(optimizer.beta2, steps),
          .eps = optimizer.eps,
          .weightDecay = optimizer.weightDecay,
          .groups = optimizer.groups};
}

AdamWStep AdamWStep::of(const std::string &group) const {
  AdamWStep step = *this;
  if (const auto found = groups.find(group); found != groups.end()) {
    step.lr *= found->second.lrMult;
    step.weightDecay = found->second.weightDecay;
  }
  return step;
}

std::vector<RunPhase> phasesOf(const PlanFile &plan, uint64_t totalSteps) {
  if (plan.phases().empty())
    return {{0, "", 0, totalSteps}};
  std::vector<RunPhase> phases;
  for (const PlanFile::Phase &phase : plan.phases())
    phases.push_back({phases.size(), phase.name, std::min(phase.firstStep, totalSteps),
                      std::min(phase.firstStep + phase.steps, totalSteps)});
  phases.back().lastStep = totalSteps;
  return phases;
}

size_t phaseAt(const std::vector<RunPhase> &phases, uint64_t step, bool isDone) {
  for (const RunPhase &phase : phases)
    if (isDone ? step <= phase.lastStep : step < phase.lastStep)
      return phase.index;
  return phases.size() - 1;
}

} // namespace lmc
