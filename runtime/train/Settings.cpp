#include "runtime/train/Settings.h"

#include "runtime/plan/Names.h"
#include "runtime/plan/PhaseSource.h"
#include "runtime/support/Nearest.h"

#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>

namespace lmc {

using plan::SettingType;

const char *originName(SettingOrigin origin) {
  switch (origin) {
  case SettingOrigin::Default:
    return "default";
  case SettingOrigin::File:
    return "file";
  case SettingOrigin::CompileSet:
    return "lmc compile --set";
  case SettingOrigin::RunSet:
    return "lmc-run --set";
  }
  return "";
}

std::string Setting::text() const {
  return type == SettingType::StringList ? fmt::format("[{}]", fmt::join(values, ", ")) : value;
}

static const char *typeName(SettingType type) {
  switch (type) {
  case SettingType::Integer:
    return "an integer";
  case SettingType::Float:
    return "a number";
  case SettingType::Boolean:
    return "true or false";
  case SettingType::String:
    return "a string";
  case SettingType::StringList:
    return "a string or a list of strings";
  }
  return "a value";
}

template <typename T> static bool parseWhole(const std::string &text, T &value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

// A value from the command line: its canonical text, or the elements of a list.
struct ParsedValue {
  std::string value;
  std::vector<std::string> values;
  double number = 0;
};

// Reads `text` as a TOML value or, if it is not valid TOML, as a string without quotes. Returns
// false if the value does not have the type `type`.
static bool parseValue(const std::string &text, SettingType type, ParsedValue &parsed) {
  toml::parse_result document = toml::parse("v = " + text);
  const toml::node *node = document ? document.table().get("v") : nullptr;
  // A text such as "1\nw = 2" would define a second key and is refused.
  if (document && document.table().size() != 1)
    node = nullptr;
  switch (type) {
  case SettingType::Integer:
    if (!node || !node->is_integer())
      return false;
    parsed.value = fmt::format("{}", node->as_integer()->get());
    parsed.number = static_cast<double>(node->as_integer()->get());
    return true;
  case SettingType::Float:
    if (!node || !node->is_number())
      return false;
    parsed.number = *node->value<double>();
    parsed.value = fmt::format("{}", parsed.number);
    return std::isfinite(parsed.number);
  case SettingType::Boolean:
    if (!node || !node->is_boolean())
      return false;
    parsed.value = node->as_boolean()->get() ? "true" : "false";
    return true;
  case SettingType::String:
    if (node && !node->is_string())
      return false;
    parsed.value = node ? node->as_string()->get() : text;
    return true;
  case SettingType::StringList:
    if (node && node->is_array()) {
      for (const toml::node &element : *node->as_array()) {
        if (!element.is_string())
          return false;
        parsed.values.push_back(element.as_string()->get());
      }
      return true;
    }
    if (node && !node->is_string())
      return false;
    parsed.values = {node ? node->as_string()->get() : text};
    return true;
  }
  return false;
}

Result<void> SettingTable::apply(const plan::Plan &plan, const std::string &override) {
  size_t equals = override.find('=');
  if (equals == std::string::npos)
    return Error{fmt::format("--set {}: expected section.key=value", override)};
  std::string key = override.substr(0, equals), text = override.substr(equals + 1);

  const auto &settings = *plan.settings();
  auto found = std::find_if(settings.begin(), settings.end(),
                            [&](const plan::Setting *s) { return s->key()->str() == key; });
  if (found == settings.end()) {
    std::vector<std::string> keys;
    for (const plan::Setting *setting : settings)
      if (setting->run_time())
        keys.push_back(setting->key()->str());
    const std::string meant = suggestion(key, keys);
    return Error{fmt::format("--set {}: unknown key '{}'{}", override, key,
                             meant.empty() ? "; the plan has no such setting" : meant)};
  }
  if (!found->run_time())
    return Error{fmt::format("--set {}: '{}' is fixed in the plan; change the TOML and compile "
                             "again",
                             override, key)};

  ParsedValue parsed;
  if (!parseValue(text, found->type(), parsed))
    return Error{fmt::format("--set {}: '{}' takes {}", override, key, typeName(found->type()))};

  bool numeric = found->type() == SettingType::Integer || found->type() == SettingType::Float;
  // In the plan's table, minimum = maximum = 0 means that there are no bounds.
  bool bounded = found->minimum() < found->maximum();
  if (numeric && bounded &&
      !(parsed.number >= found->minimum() && parsed.number <= found->maximum()))
    return Error{fmt::format("--set {}: '{}' must be between {} and {}", override, key,
                             found->minimum(), found->maximum())};
  if (found->type() == SettingType::String && found->choices() && found->choices()->size() > 0) {
    std::vector<std::string> choices;
    for (const auto *choice : *found->choices())
      choices.push_back(choice->str());
    if (std::find(choices.begin(), choices.end(), parsed.value) == choices.end())
      return Error{fmt::format("--set {}: '{}' is one of {}{}", override, key,
                               fmt::join(choices, ", "), suggestion(parsed.value, choices))};
  }

  Setting &entry = entries[static_cast<size_t>(found - settings.begin())];
  entry.value = parsed.value;
  entry.values = parsed.values;
  entry.origin = SettingOrigin::RunSet;
  return {};
}

Result<SettingTable> SettingTable::fromPlan(const plan::Plan &plan,
                                            const std::vector<std::string> &overrides) {
  SettingTable table;
  for (const plan::Setting *setting : *plan.settings()) {
    Setting entry{.key = setting->key()->str(),
                  .type = setting->type(),
                  .value = setting->value()->str(),
                  .values = {},
                  .origin = static_cast<SettingOrigin>(setting->origin()),
                  .identity = setting->identity(),
                  .derivedFrom = setting->derived_from() ? setting->derived_from()->str() : "",
                  .derivedDivisor = setting->derived_divisor()};
    if (setting->values())
      for (const auto *value : *setting->values())
        entry.values.push_back(value->str());
    table.entries.push_back(std::move(entry));
  }
  for (const std::string &override : overrides)
    LMC_TRY(table.apply(plan, override));
  table.deriveDefaults();
  return table;
}

// A setting that is fixed in the plan needs no new value: the setting that it follows is fixed too,
// or the compiled value holds.
void SettingTable::deriveDefaults() {
  std::set<std::string> moved; // a setting comes before those that follow it
  for (Setting &setting : entries) {
    const Setting *from = find(setting.derivedFrom);
    const bool follows = from && (from->origin == SettingOrigin::RunSet || moved.count(from->key));
    double value = 0;
    if (setting.origin != SettingOrigin::Default || !follows || !parseWhole(from->value, value) ||
        !std::isfinite(value / setting.derivedDivisor))
      continue;
    setting.value = setting.type == SettingType::Integer
                        ? fmt::format("{}", int64_t(value / setting.derivedDivisor))
                        : fmt::format("{}", value / setting.derivedDivisor);
    moved.insert(setting.key);
  }
}

const Setting *SettingTable::find(std::string_view key) const {
  auto entry = std::find_if(entries.begin(), entries.end(),
                            [&](const Setting &setting) { return setting.key == key; });
  return entry == entries.end() ? nullptr : &*entry;
}

Result<const Setting *> SettingTable::find(std::string_view key, SettingType type) const {
  const Setting *setting = find(key);
  if (setting && setting->type == type)
    return setting;
  return Error{fmt::format("the plan has no setting '{}' that is {}; compile it again with the lmc "
                           "of this release",
                           key, typeName(type))};
}

Result<int64_t> SettingTable::integer(std::string_view key) const {
  auto entry = find(key, SettingType::Integer);
  LMC_TRY(entry);
  int64_t value = 0;
  if (!parseWhole((*entry)->value, value))
    return Error{fmt::format("plan: setting '{}' is '{}', not an integer", key, (*entry)->value)};
  return value;
}

Result<double> SettingTable::number(std::string_view key) const {
  auto entry = find(key, SettingType::Float);
  LMC_TRY(entry);
  double value = 0;
  if (!parseWhole((*entry)->value, value) || !std::isfinite(value))
    return Error{fmt::format("plan: setting '{}' is '{}', not a number", key, (*entry)->value)};
  return value;
}

Result<bool> SettingTable::boolean(std::string_view key) const {
  auto entry = find(key, SettingType::Boolean);
  LMC_TRY(entry);
  return (*entry)->value == "true";
}

Result<std::string> SettingTable::text(std::string_view key) const {
  auto entry = find(key, SettingType::String);
  LMC_TRY(entry);
  return (*entry)->value;
}

Result<std::vector<std::string>> SettingTable::list(std::string_view key) const {
  auto entry = find(key, SettingType::StringList);
  LMC_TRY(entry);
  return (*entry)->values;
}

// Reads the keys of a schedule that the section has; the others stay as they are in `keys`.
static Result<LrKeys> readLrKeys(const SettingTable &table, const std::string &section,
                                 LrKeys keys) {
  auto read = [&](const char *name, auto &value, auto get) -> Result<void> {
    const std::string key = fmt::format("{}.{}", section, name);
    const Setting *setting = table.find(key);
    if (!setting)
      return {};
    auto found = (table.*get)(key);
    LMC_TRY(found);
    value = *found;
    if (setting->origin != SettingOrigin::Default)
      keys.given[name] = static_cast<int>(setting->origin);
    return {};
  };
  using Table = SettingTable;
  LMC_TRY(read("style", keys.style, &Table::text));
  LMC_TRY(read("lr", keys.lr, &Table::number));
  LMC_TRY(read("min_lr", keys.minLr, &Table::number));
  LMC_TRY(read("min_lr_ratio", keys.minLrRatio, &Table::number));
  LMC_TRY(read("warmup_iters", keys.warmupIters, &Table::integer));
  LMC_TRY(read("warmup_ratio", keys.warmupRatio, &Table::number));
  LMC_TRY(read("warmup_init", keys.warmupInit, &Table::number));
  LMC_TRY(read("decay_iters", keys.decayIters, &Table::integer));
  LMC_TRY(read("wsd_decay_fraction", keys.wsdDecayFraction, &Table::number));
  LMC_TRY(read("wsd_decay_style", keys.wsdDecayStyle, &Table::text));
  LMC_TRY(read("points", keys.points, &Table::list));
  LMC_TRY(read("restart_step", keys.restartStep, &Table::integer));
  // Only a hostile plan has a negative number.
  if (keys.restartStep < 0 || keys.warmupIters < 0 || keys.decayIters < 0)
    return Error{fmt::format("plan: a number of steps in {} is below 0", section)};
  return keys;
}

// Returns the schedule of the keys of a section, or the first mistake in them.
static Result<LrSettings> settingsOf(const LrKeys &keys, const std::string &section,
                                     int64_t lastStep) {
  const std::vector<LrFault> faults = lrFaults(keys, lastStep);
  if (!faults.empty())
    return Error{fmt::format("{0}.{1}; --set {0}.{2}=... changes it", section, faults[0].text,
                             faults[0].key)};
  return lrSettings(keys, lastStep);
}

Result<LrSettings> readLrSettings(const SettingTable &table, const std::string &section,
                                  int64_t lastStep) {
  auto keys = readLrKeys(table, section, {});
  LMC_TRY(keys);
  return settingsOf(*keys, section, lastStep);
}

// Returns the names of the tables of a list, "data.source": those of its settings, as in
// "data.source.web.paths".
static std::set<std::string> tablesOf(const SettingTable &table, const std::string &list) {
  const std::string prefix = list + ".";
  std::set<std::string> names;
  for (const Setting &setting : table.all())
    if (setting.key.starts_with(prefix))
      names.insert(setting.key.substr(prefix.size(), setting.key.rfind('.') - prefix.size()));
  return names;
}

// The error for a plan with tables of `list` if `alone`, which is in their place, is set too.
static Error givenTwice(const char *alone, const char *list, const std::set<std::string> &names,
                        const char *kind) {
  return Error{fmt::format("{0} is set, and the plan has the {1} {2} ({3}); set their paths "
                           "instead, such as {3}.{4}.paths, or compile without them",
                           alone, kind, fmt::join(names, ", "), list, *names.begin())};
}

// Returns the sources of the training data, as TrainSettings::trainData has them.
static Result<std::vector<SourceOptions>> readTrainData(const SettingTable &table) {
  const std::string prefix = std::string(kSources) + ".";
  const std::set<std::string> names = tablesOf(table, kSources);
  auto alone = table.list(kTrainData);
  LMC_TRY(alone);
  std::vector<SourceOptions> sources;
  if (names.empty() && !alone->empty())
    sources.push_back({.name = "", .key = kTrainData, .paths = *alone});
  if (!names.empty() && !alone->empty())
    return givenTwice(kTrainData, kSources, names, "sources");
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
  const std::set<std::string> names = tablesOf(table, kValidationSets);
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
  if (!names.empty() && !sets.empty())
    return givenTwice(kValidationData, kValidationSets, names, "validation sets");
  for (const std::string &name : names) {
    const std::string key = fmt::format("{}.{}", kValidationSets, name);
    LMC_TRY(add(name, key + ".paths", key + ".interval", key + ".iters"));
  }
  return sets;
}

// Leaves the sources that the phase reads, with their weights there.
static Result<void> enterPhaseData(const SettingTable &table, const std::string &phase,
                                   std::vector<SourceOptions> &sources) {
  const std::string key = fmt::format("phase.{}.sources", phase);
  auto chosen = table.list(key);
  LMC_TRY(chosen);
  if (chosen->empty())
    return {};
  std::map<std::string, std::optional<double>> weights;
  for (const std::string &text : *chosen) {
    auto source = parsePhaseSource(text);
    if (!source)
      return Error{fmt::format("{}: {}", key, source.error().message)};
    if (!weights.emplace(source->name, source->weight).second)
      return Error{fmt::format("{}: '{}' is listed twice", key, source->name)};
  }
  std::erase_if(sources, [&](const SourceOptions &source) { return !weights.count(source.name); });
  if (sources.size() < weights.size())
    return Error{
        fmt::format("{}: [[data.source]] has not all of {}", key, fmt::join(*chosen, ", "))};
  for (SourceOptions &source : sources)
    source.weight = weights[source.name].value_or(source.weight);
  return {};
}

// Sets the schedule of a phase that has one of its own. What it does not give of a decay is as in
// [lr_schedule].
static Result<void> enterPhaseSchedule(const SettingTable &table, const PlanFile::Phase &phase,
                                       LrSettings &lr) {
  const std::string section = fmt::format("phase.{}", phase.name);
  auto style = table.text(section + ".lr_style");
  LMC_TRY(style);
  if (*style == "continue")
    return {};
  auto whole = readLrKeys(table, "lr_schedule", {});
  LMC_TRY(whole);
  auto keys = readLrKeys(table, section,
                         {.style = *style,
                          .wsdDecayFraction = whole->wsdDecayFraction,
                          .wsdDecayStyle = whole->wsdDecayStyle});
  LMC_TRY(keys);
  keys->restartStep = static_cast<int64_t>(phase.firstStep);
  auto own = settingsOf(*keys, section, static_cast<int64_t>(phase.firstStep + phase.steps));
  LMC_TRY(own);
  lr = std::move(*own);
  return {};
}

Result<std::vector<StepRange>> readStepRanges(std::string_view text) {
  const Error wrong{fmt::format("'{}' is no list of steps, such as 120,130-140", text)};
  std::vector<StepRange> ranges;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(part.size());
    const bool more = !text.empty();
    text.remove_prefix(more ? 1 : 0);
    const char *end = part.data() + part.size();
    StepRange range;
    auto read = std::from_chars(part.data(), end, range.first);
    range.last = range.first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-')
      read = std::from_chars(read.ptr + 1, end, range.last);
    if (read.ec != std::errc() || read.ptr != end || range.first == 0 || range.last < range.first ||
        (more && text.empty()))
      return wrong;
    ranges.push_back(range);
  }
  return ranges;
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
  for (const std::string &name : tablesOf(table, "optimizer.group")) {
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
    if (muonLr > 0 && peak == 0)
      return Error{fmt::format("optimizer.muon_lr = {} follows the schedule of lr_schedule.lr, "
                               "which is 0; give an lr above 0, or leave out muon_lr",
                               muonLr)};
    settings.muonRate = muonLr > 0 ? muonLr / peak : 1;
  }

  auto lr = readLrSettings(table, "lr_schedule", settings.trainIters);
  LMC_TRY(lr);
  settings.lr = std::move(*lr);

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
    std::vector<std::string> names;
    for (const ValidationSettings &set : settings.validations)
      names.push_back(set.name.empty() ? kValidationData : set.name);
    if (!best->empty() && std::ranges::find(names, *best) == names.end())
      return Error{fmt::format("checkpoint.keep_best: '{}' is no set of validation data; {}", *best,
                               names.empty() ? std::string("the job has none")
                                             : fmt::format("there is {}", fmt::join(names, ", ")))};
    settings.checkpointKeepBest = *best;
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
    if (!command->empty() && settings.exportInterval == 0)
      return Error{"checkpoint.export_command is run for each export, and there is none with "
                   "checkpoint.export_interval = 0; set the interval"};
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
    if (*onSpike != "warn" && *action == "off")
      return Error{fmt::format("guard.on_spike is \"{}\", and guard.action = \"off\" looks for no "
                               "spikes; set guard.action to \"stop\" or \"warn\"",
                               *onSpike)};
    settings.guard.onSpike = *onSpike;
    LMC_TRY(count("guard.rollbacks", settings.guard.rollbacks));
    auto text = table.text("guard.skip_steps");
    LMC_TRY(text);
    auto skipSteps = readStepRanges(*text);
    if (!skipSteps)
      return Error{"guard.skip_steps: " + skipSteps.error().message};
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
    LMC_TRY(count("guard.compare_weights", settings.guard.compareWeights));
  }

  LMC_TRY(number("target.peak_tflops", settings.peakTflops));
  return settings;
}

} // namespace lmc
