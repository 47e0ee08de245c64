#include "runtime/settings/Settings.h"

#include "ground/plan/Names.h"
#include "ground/plan/PhaseSource.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace lmc {

// Returns the names of the tables of a list, in ascending order.
static std::vector<std::string> sortedTables(const SettingTable &table, const char *list) {
  std::vector<std::string> names = table.tablesOf(list);
  std::ranges::sort(names);
  return names;
}

// Returns the sources of the training data, as TrainSettings::trainData has them.
static Result<std::vector<SourceOptions>> readTrainData(const SettingTable &table) {
  const std::string prefix = std::string(kSources) + ".";
  const std::vector<std::string> names = sortedTables(table, kSources);
  auto alone = table.list(kTrainData);
  LMC_TRY(alone);
  std::vector<SourceOptions> sources;
  if (names.empty() && !alone->empty())
    sources.push_back({.name = "", .key = kTrainData, .paths = *alone});
  for (const std::string &name : names) {
    const std::string key = prefix + name;
    auto paths = table.list(key + ".paths");
    LMC_TRY(paths);
    auto weight = table.number(key + ".weight"), maxEpochs = table.number(key + ".max_epochs");
    LMC_TRY(weight);
    LMC_TRY(maxEpochs);
    sources.push_back({name, key + ".paths", *paths, *weight, *maxEpochs});
  }
  return sources;
}

// Returns the validation sets, as TrainSettings::validations has them.
static Result<std::vector<ValidationSettings>> readValidations(const SettingTable &table) {
  const std::vector<std::string> names = sortedTables(table, kValidationSets);
  std::vector<ValidationSettings> sets;
  auto add = [&](const std::string &name, const std::string &pathsKey,
                 const std::string &intervalKey, const std::string &itersKey) -> Result<void> {
    auto paths = table.list(pathsKey);
    LMC_TRY(paths);
    auto interval = table.integer(intervalKey), iters = table.integer(itersKey);
    LMC_TRY(interval);
    LMC_TRY(iters);
    if (*interval < 0 || *iters < 0)
      return Error{fmt::format("plan: {} is {} and {} is {}; neither may be below 0", intervalKey,
                               *interval, itersKey, *iters)};
    if (!name.empty() || !paths->empty())
      sets.push_back({name, pathsKey, std::move(*paths), *interval, *iters});
    return {};
  };
  LMC_TRY(
      add("", kValidationData, "monitoring.validation_interval", "monitoring.validation_iters"));
  for (const std::string &name : names) {
    const std::string key = fmt::format("{}.{}", kValidationSets, name);
    LMC_TRY(add(name, key + ".paths", key + ".interval", key + ".iters"));
  }
  return sets;
}

// Leaves the sources that the phase reads, with their weights there. The rules between settings
// have found no fault in them.
static Result<void> enterPhaseData(const SettingTable &table, const std::string &phase,
                                   std::vector<SourceOptions> &sources) {
  auto chosen = table.list(fmt::format("phase.{}.sources", phase));
  LMC_TRY(chosen);
  if (chosen->empty())
    return {};
  std::map<std::string, std::optional<double>> weights;
  for (const std::string &text : *chosen) {
    auto source = parsePhaseSource(text);
    LMC_TRY(source);
    weights.emplace(source->name, source->weight);
  }
  std::erase_if(sources, [&](const SourceOptions &source) { return !weights.count(source.name); });
  for (SourceOptions &source : sources)
    source.weight = weights[source.name].value_or(source.weight);
  return {};
}

// Sets the schedule of a phase that has one of its own.
static Result<void> enterPhaseSchedule(const SettingTable &table, const PlanFile::Phase &phase,
                                       LrSettings &lr) {
  auto style = table.text(fmt::format("phase.{}.lr_style", phase.name));
  LMC_TRY(style);
  if (*style == "continue")
    return {};
  auto keys = readPhaseLrKeys(table, phase.name);
  LMC_TRY(keys);
  keys->restartStep = static_cast<int64_t>(phase.firstStep);
  lr = lrSettings(*keys, static_cast<int64_t>(phase.firstStep + phase.steps));
  return {};
}

// Reads what a run is watched with. A plan of an earlier release has none of these keys.
static Result<MonitorSettings> readMonitors(const SettingTable &table) {
  MonitorSettings settings;
  const std::string section = "monitoring.";
  if (table.find(section + "tensorboard")) {
    auto tensorboard = table.boolean(section + "tensorboard");
    LMC_TRY(tensorboard);
    settings.tensorboard = *tensorboard;
  }
  for (const auto &[name, value] : {std::pair("prometheus", &settings.prometheus),
                                    {"on_event", &settings.onEvent},
                                    {"wandb_project", &settings.wandb.project},
                                    {"wandb_entity", &settings.wandb.entity},
                                    {"wandb_group", &settings.wandb.group},
                                    {"wandb_name", &settings.wandb.name}}) {
    if (!table.find(section + name))
      continue;
    auto text = table.text(section + name);
    LMC_TRY(text);
    *value = *text;
  }
  return settings;
}

// Returns the parameter groups, as TrainSettings::groups has them.
static Result<std::map<std::string, GroupSettings>> readGroups(const SettingTable &table) {
  std::map<std::string, GroupSettings> groups;
  for (const std::string &name : table.tablesOf("optimizer.group")) {
    auto weightDecay = table.number(names::groupSetting(name, "weight_decay"));
    auto lrMult = table.number(names::groupSetting(name, "lr_mult"));
    LMC_TRY(weightDecay);
    LMC_TRY(lrMult);
    groups[name] = {*weightDecay, *lrMult};
  }
  return groups;
}

Result<TrainSettings> TrainSettings::read(const SettingTable &table, const PlanFile::Phase *phase) {
  TrainSettings settings;
  for (const SettingFault &fault : settingFaults(table)) {
    if (!fault.isWarning)
      return Error{fmt::format("{}; --set {}=... changes it", fault.named(), fault.key)};
    settings.warnings.push_back(fault.named());
  }
  // Counts and intervals are negative only in a hostile plan.
  auto count = [&](std::string_view key, int64_t &value) -> Result<void> {
    auto read = table.integer(key);
    LMC_TRY(read);
    if (*read < 0)
      return Error{fmt::format("plan: setting '{}' is {}, below 0", key, *read)};
    value = *read;
    return {};
  };
  auto number = [&](std::string_view key, double &value) -> Result<void> {
    auto read = table.number(key);
    LMC_TRY(read);
    value = *read;
    return {};
  };

  int64_t seed = 0;
  LMC_TRY(count("training.seed", seed));
  settings.seed = static_cast<uint64_t>(seed);
  LMC_TRY(count("training.train_iters", settings.trainIters));

  LMC_TRY(number("optimizer.beta1", settings.beta1));
  LMC_TRY(number("optimizer.beta2", settings.beta2));
  LMC_TRY(number("optimizer.eps", settings.eps));
  LMC_TRY(number("optimizer.weight_decay", settings.weightDecay));
  auto groups = readGroups(table);
  LMC_TRY(groups);
  settings.groups = std::move(*groups);

  auto type = table.text("optimizer.type");
  LMC_TRY(type);
  if (*type == "muon") {
    double muonLr = 0, peak = 0;
    LMC_TRY(number("optimizer.muon_lr", muonLr));
    LMC_TRY(number("lr_schedule.lr", peak));
    settings.muonRate = muonLr > 0 ? muonLr / peak : 1;
  }

  auto lr = readLrKeys(table, "lr_schedule", {});
  LMC_TRY(lr);
  settings.lr = lrSettings(*lr, settings.trainIters);

  auto trainData = readTrainData(table);
  LMC_TRY(trainData);
  settings.trainData = std::move(*trainData);
  if (phase) {
    LMC_TRY(enterPhaseSchedule(table, *phase, settings.lr));
    LMC_TRY(enterPhaseData(table, phase->name, settings.trainData));
  }
  auto validations = readValidations(table);
  LMC_TRY(validations);
  settings.validations = std::move(*validations);
  LMC_TRY(count("data.num_workers", settings.numWorkers));
  auto format = table.text("data.format");
  LMC_TRY(format);
  settings.dataFormat = *format;
  LMC_TRY(count("data.shuffle_block", settings.shuffleBlock));
  auto packing = table.text("data.packing");
  LMC_TRY(packing);
  settings.bestFit = *packing == "best_fit";
  auto allowRepeats = table.boolean("data.allow_repeats");
  LMC_TRY(allowRepeats);
  settings.allowRepeats = *allowRepeats;
  auto lossMask = table.boolean("training.document_loss_mask");
  LMC_TRY(lossMask);
  settings.documentLossMask = *lossMask;
  auto endOfDocument = table.integer("data.end_of_document");
  LMC_TRY(endOfDocument);
  if (*endOfDocument < -1 || *endOfDocument > INT32_MAX)
    return Error{fmt::format("plan: setting 'data.end_of_document' is {}, no token id",
                             *endOfDocument)};
  settings.endOfDocument = static_cast<int32_t>(*endOfDocument);

  LMC_TRY(count("checkpoint.interval", settings.checkpointInterval));
  LMC_TRY(count("checkpoint.keep", settings.checkpointKeep));
  if (table.find("checkpoint.keep_every")) { // a plan of an earlier release does not have it
    LMC_TRY(count("checkpoint.keep_every", settings.checkpointKeepEvery));
    auto best = table.text("checkpoint.keep_best");
    LMC_TRY(best);
    settings.checkpointKeepBest = *best;
    if (table.find("checkpoint.save_best")) {
      auto saveBest = table.boolean("checkpoint.save_best");
      LMC_TRY(saveBest);
      settings.checkpointBest = *saveBest;
    }
  }
  LMC_TRY(count("checkpoint.export_interval", settings.exportInterval));
  if (table.find("checkpoint.background")) { // a plan of an earlier release does not have it
    auto background = table.boolean("checkpoint.background");
    LMC_TRY(background);
    settings.checkpointBackground = *background;
  }

  LMC_TRY(count("monitoring.log_interval", settings.logInterval));
  settings.logInterval = std::max<int64_t>(settings.logInterval, 1);

  auto monitors = readMonitors(table);
  LMC_TRY(monitors);
  settings.monitors = std::move(*monitors);
  if (table.find("checkpoint.export_command")) { // a plan of an earlier release does not have it
    auto command = table.text("checkpoint.export_command");
    LMC_TRY(command);
    settings.monitors.onExport = std::move(*command);
  }

  if (table.find("generation.prompts")) { // a plan of an earlier release does not have it
    auto prompts = table.text("generation.prompts");
    LMC_TRY(prompts);
    settings.generation.prompts = *prompts;
    LMC_TRY(count("generation.interval", settings.generation.interval));
    int64_t most = 0;
    LMC_TRY(count("generation.max_new_tokens", most));
    settings.generation.maxNewTokens = static_cast<uint64_t>(most);
    LMC_TRY(number("generation.temperature", settings.generation.sampling.temperature));
    LMC_TRY(number("generation.top_p", settings.generation.sampling.topP));
  }

  auto action = table.text("guard.action");
  LMC_TRY(action);
  settings.guard.action = *action;
  // A plan of an earlier release does not have these keys.
  if (table.find("guard.on_spike")) {
    auto onSpike = table.text("guard.on_spike");
    LMC_TRY(onSpike);
    settings.guard.onSpike = *onSpike;
    LMC_TRY(count("guard.rollbacks", settings.guard.rollbacks));
    settings.guard.refund = 0; // a plan of an earlier release has none
    if (table.find("guard.refund"))
      LMC_TRY(count("guard.refund", settings.guard.refund));
    auto text = table.text("guard.skip_steps");
    LMC_TRY(text);
    auto skipSteps = readStepRanges(*text);
    LMC_TRY(skipSteps);
    settings.skipSteps = std::move(*skipSteps);
  }
  LMC_TRY(count("guard.window", settings.guard.window));
  LMC_TRY(number("guard.spike", settings.guard.spike));
  LMC_TRY(count("guard.patience", settings.guard.patience));
  LMC_TRY(number("guard.rise", settings.guard.rise));
  if (table.find("guard.update_ratio")) // a plan of an earlier release does not have it
    LMC_TRY(number("guard.update_ratio", settings.guard.updateRatio));
  if (table.find("guard.dead_expert"))
    LMC_TRY(count("guard.dead_expert", settings.guard.deadExpert));

  if (table.find("guard.plateau")) { // a plan of an earlier release does not have these
    LMC_TRY(number("guard.plateau", settings.guard.plateau));
    settings.guard.validation = 0; // a plan of an earlier release has none
    if (table.find("guard.validation"))
      LMC_TRY(number("guard.validation", settings.guard.validation));
    LMC_TRY(count("guard.compare_weights", settings.guard.compareWeights));
  }

  LMC_TRY(number("target.peak_tflops", settings.peakTflops));
  return settings;
}

} // namespace lmc
