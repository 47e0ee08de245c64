#include "ground/settings/SettingRules.h"

#include "ground/settings/PhaseSource.h"
#include "ground/support/Nearest.h"
#include "ground/support/Shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

namespace lmc {
namespace {

using Faults = std::vector<SettingFault>;

constexpr int64_t kStepsWithoutPrediction = 1000;
constexpr double kLongSeconds = 1800; // of a run without a checkpoint

// The settings of a table, each with what it is without the key.
class Values {
public:
  explicit Values(const SettingTable &table) : table(table) {}

  bool given(std::string_view key) const {
    const Setting *setting = table.find(key);
    return setting && setting->origin != SettingOrigin::Default;
  }
  int64_t integer(std::string_view key, int64_t fallback = 0) const {
    const auto value = table.integer(key);
    return value ? *value : fallback;
  }
  double number(std::string_view key, double fallback = 0) const {
    const auto value = table.number(key);
    return value ? *value : fallback;
  }
  bool boolean(std::string_view key) const {
    const auto value = table.boolean(key);
    return value && *value;
  }
  std::string text(std::string_view key) const {
    const auto value = table.text(key);
    return value ? *value : "";
  }
  std::vector<std::string> list(std::string_view key) const {
    const auto value = table.list(key);
    return value ? *value : std::vector<std::string>();
  }
  std::vector<std::string> tablesOf(std::string_view name) const { return table.tablesOf(name); }

  const SettingTable &table;
};

// Returns the sequence lengths of the job, ascending: one, or those of its phases.
std::vector<int64_t> sequenceLengths(const Values &values) {
  std::vector<int64_t> lengths;
  for (const std::string &phase : values.tablesOf("phase"))
    lengths.push_back(values.integer(fmt::format("phase.{}.sequence_length", phase)));
  if (lengths.empty())
    lengths.push_back(values.integer("training.sequence_length"));
  std::ranges::sort(lengths);
  lengths.erase(std::ranges::unique(lengths).begin(), lengths.end());
  return lengths;
}

void schedule(const Values &values, Faults &faults) {
  const auto keys = readLrKeys(values.table, "lr_schedule", {});
  if (!keys) {
    faults.push_back({.key = "lr_schedule.style", .text = keys.error().message});
    return;
  }
  for (const LrFault &fault : lrFaults(*keys, values.integer("training.train_iters"))) {
    SettingFault found{.key = "lr_schedule." + fault.key,
                       .reads = {"training.train_iters"},
                       .text = fault.text,
                       .isWarning = fault.isWarning};
    for (const std::string &key : fault.reads)
      found.reads.push_back("lr_schedule." + key);
    faults.push_back(std::move(found));
  }
}

void phaseSchedules(const Values &values, Faults &faults) {
  const std::vector<std::string> names = values.tablesOf("phase");
  int64_t before = 0; // steps of the phases before
  for (const std::string &name : names) {
    const std::string section = fmt::format("phase.{}.", name);
    int64_t steps = values.integer(section + "steps");
    // The last phase ends with the run.
    if (const int64_t last = values.integer("training.train_iters"); name == names.back())
      steps = last > before ? last - before : steps;
    before += steps;
    if (values.text(section + "lr_style") == "continue") {
      for (const char *key : {"lr", "min_lr", "warmup_iters"})
        if (values.given(section + key))
          faults.push_back({.key = section + key,
                            .reads = {section + "lr_style"},
                            .text = fmt::format("{0} is of a schedule of the phase's own; give "
                                                "lr_style too, or leave {0} out",
                                                key)});
      continue;
    }
    const auto keys = readPhaseLrKeys(values.table, name);
    if (!keys || steps <= 0)
      continue; // a plan of other types is refused where it is read
    for (const LrFault &fault : lrFaults(*keys, steps)) {
      SettingFault found{.key = section + fault.key,
                         .reads = {section + "steps", section + "lr_style"},
                         .text = fault.text,
                         .isWarning = fault.isWarning};
      for (const std::string &key : fault.reads)
        found.reads.push_back(section + key);
      faults.push_back(std::move(found));
    }
  }
}

void muon(const Values &values, Faults &faults) {
  const double rate = values.number("optimizer.muon_lr");
  if (values.text("optimizer.type") == "muon" && rate > 0 && values.number("lr_schedule.lr") == 0)
    faults.push_back({.key = "optimizer.muon_lr",
                      .reads = {"optimizer.type", "lr_schedule.lr"},
                      .text = fmt::format("muon_lr = {} follows the schedule of lr_schedule.lr, "
                                          "which is 0; give an lr above 0, or leave out muon_lr",
                                          rate)});
}

// Reports a list of files, `key`, beside the tables of a list that stand in its place.
void oneForm(const Values &values, const std::string &key, const std::string &list,
             const char *what, Faults &faults) {
  const std::vector<std::string> tables = values.tablesOf(list);
  if (tables.empty() || values.list(key).empty())
    return;
  faults.push_back({.key = key,
                    .text = fmt::format("{0} and [[{1}]] ({2}) both say what to {3}; set the paths "
                                        "of a table, such as {1}.{4}.paths, or leave {0} out",
                                        key.substr(key.rfind('.') + 1), list,
                                        fmt::join(tables, ", "), what, tables[0])});
}

// Reports tables of a list without paths.
void emptyTables(const Values &values, const std::string &list, Faults &faults) {
  for (const std::string &name : values.tablesOf(list)) {
    const std::string key = fmt::format("{}.{}.paths", list, name);
    if (values.list(key).empty())
      faults.push_back({.key = key,
                        .text = fmt::format("[[{}]] {} has an empty list of paths; give it token "
                                            "files, or leave it out",
                                            list, name)});
  }
}

void sources(const Values &values, Faults &faults) {
  oneForm(values, "data.train", "data.source", "train on", faults);
  emptyTables(values, "data.source", faults);
  std::map<std::string, std::string> known; // the source of each path
  for (const std::string &name : values.tablesOf("data.source")) {
    const std::string key = fmt::format("data.source.{}.paths", name);
    for (const std::string &path : values.list(key))
      if (const auto [other, isNew] = known.emplace(path, name);
          !isNew && !values.boolean("data.allow_repeats"))
        faults.push_back({.key = key,
                          .reads = {"data.allow_repeats"},
                          .text = fmt::format("'{}' is in [[data.source]] {} already; list it "
                                              "once, or set data.allow_repeats = true",
                                              path, other->second)});
  }
}

// Reports weights that no run could mix, for the weight with the most digits.
void weights(const Values &values, Faults &faults) {
  std::vector<double> numbers;
  SettingFault fault;
  size_t digits = 0;
  for (const std::string &name : values.tablesOf("data.source")) {
    const std::string key = fmt::format("data.source.{}.weight", name);
    numbers.push_back(values.number(key, 1));
    fault.reads.push_back(key);
    if (const size_t length = fmt::formatted_size("{}", numbers.back()); length > digits) {
      digits = length;
      fault.key = key;
    }
  }
  if (numbers.empty())
    return;
  if (const auto shares = sharesOfWeights(numbers); !shares) {
    fault.text = shares.error().message;
    faults.push_back(std::move(fault));
  }
}

void phaseSources(const Values &values, Faults &faults) {
  const std::vector<std::string> known = values.tablesOf("data.source"),
                                 given = values.table.givenTablesOf("data.source");
  for (const std::string &phase : values.tablesOf("phase")) {
    const std::string key = fmt::format("phase.{}.sources", phase);
    const auto report = [&](std::string text) {
      faults.push_back({.key = key, .text = std::move(text)});
    };
    std::vector<std::string> names;
    std::vector<double> numbers;
    const std::vector<std::string> listed = values.list(key);
    for (const std::string &text : listed) {
      const Result<PhaseSource> source = parsePhaseSource(text);
      if (!source) {
        report(source.error().message);
      } else if (known.empty() && std::ranges::find(given, source->name) != given.end()) {
        report(fmt::format("sources = {} are tables of [[data.source]], and data.train was given "
                           "after them; set the paths of a table, such as data.source.{}.paths",
                           fmt::join(listed, ", "), source->name));
        break;
      } else if (std::ranges::find(known, source->name) == known.end()) {
        report(fmt::format("[[data.source]] has no '{}'{}", source->name,
                           suggestion(source->name, known)));
      } else if (std::ranges::find(names, source->name) != names.end()) {
        report(fmt::format("'{}' is listed twice", source->name));
      } else {
        names.push_back(source->name);
        numbers.push_back(source->weight.value_or(
            values.number(fmt::format("data.source.{}.weight", source->name), 1)));
      }
    }
    if (names.empty() || names.size() < listed.size())
      continue; // all sources, or one is wrong
    if (const auto shares = sharesOfWeights(numbers); !shares)
      report(shares.error().message);
  }
}

void shuffling(const Values &values, Faults &faults) {
  const std::vector<int64_t> lengths = sequenceLengths(values);
  const int64_t block = values.integer("data.shuffle_block", lengths[0]);
  const bool bestFit = values.text("data.packing") == "best_fit";
  const std::string key = "data.shuffle_block";
  const std::vector<std::string> reads = {"training.sequence_length", "data.packing", "phase"};
  if (bestFit && lengths.size() > 1) {
    faults.push_back(
        {.key = "data.packing",
         .reads = reads,
         .text = fmt::format("packing = \"best_fit\" fills sequences of one length, and the phases "
                             "have {}; give all phases one length, or use packing = "
                             "\"concatenate\"",
                             fmt::join(lengths, " and "))});
    return;
  }
  for (const int64_t length : lengths)
    if (length > 0 && block % length != 0)
      faults.push_back({.key = key,
                        .reads = reads,
                        .text = fmt::format("shuffle_block = {} is no multiple of sequence_length "
                                            "= {}; use {}",
                                            block, length, nearestMultiples(length, block))});
  if (bestFit && lengths[0] > 0 && block != lengths[0])
    faults.push_back({.key = key,
                      .reads = reads,
                      .text = fmt::format("packing = \"best_fit\" fills sequences with whole "
                                          "documents, so shuffle_block = {} must be "
                                          "sequence_length = {}",
                                          block, lengths[0])});
}

void validation(const Values &values, Faults &faults) {
  const char *const data = "data.validation", *const interval = "monitoring.validation_interval";
  oneForm(values, data, "validation", "validate with", faults);
  emptyTables(values, "validation", faults);
  const bool trains = !values.list("data.train").empty() || !values.tablesOf("data.source").empty();
  const bool validates = !values.list(data).empty() || !values.tablesOf("validation").empty();
  const Setting *files = values.table.find(data);
  // `--set data.validation=[]` says by itself that there is no validation.
  const bool isWithout = files && (files->origin == SettingOrigin::CompileSet ||
                                   files->origin == SettingOrigin::RunSet);
  if (values.integer(interval) > 0 && trains && !validates && !isWithout)
    faults.push_back({.key = interval,
                      .reads = {"data.train", data},
                      .text = fmt::format("validation_interval = {} needs data: give 'validation' "
                                          "in [data] or [[validation]], or set it to 0",
                                          values.integer(interval))});
}

void keepBest(const Values &values, Faults &faults) {
  const std::string best = values.text("checkpoint.keep_best");
  std::vector<std::string> names = values.tablesOf("validation");
  if (!values.list("data.validation").empty())
    names.insert(names.begin(), "data.validation");
  if (!best.empty() && std::ranges::find(names, best) == names.end())
    faults.push_back(
        {.key = "checkpoint.keep_best",
         .reads = {"data.validation"},
         .text = fmt::format("keep_best = \"{}\" is no set of validation data; {}", best,
                             names.empty() ? std::string("the job has none")
                                           : fmt::format("there is {}", fmt::join(names, ", ")))});
}

void bestCheckpoint(const Values &values, Faults &faults) {
  if (values.boolean("checkpoint.save_best") && values.text("checkpoint.keep_best").empty())
    faults.push_back({.key = "checkpoint.save_best",
                      .reads = {"checkpoint.keep_best"},
                      .text =
                          "save_best saves the checkpoints of keep_best, and it names no set of "
                          "validation data; set keep_best, such as \"data.validation\""});
}

void intervals(const Values &values, Faults &faults) {
  const Setting *steps = values.table.find("checkpoint.interval"),
                *minutes = values.table.find("checkpoint.interval_minutes");
  if (steps && minutes && steps->origin == minutes->origin &&
      steps->origin != SettingOrigin::Default)
    faults.push_back({.key = "checkpoint.interval_minutes",
                      .reads = {"checkpoint.interval"},
                      .text = "interval and interval_minutes say the same; give one of them"});
}

void exportCommand(const Values &values, Faults &faults) {
  if (!values.text("checkpoint.export_command").empty() &&
      values.integer("checkpoint.export_interval") == 0)
    faults.push_back({.key = "checkpoint.export_command",
                      .reads = {"checkpoint.export_interval"},
                      .text = "export_command is run for each export, and there is none with "
                              "export_interval = 0; set the interval"});
}

void generation(const Values &values, Faults &faults) {
  const int64_t most = values.integer("generation.max_new_tokens");
  const int64_t length = sequenceLengths(values).front();
  if (!values.text("generation.prompts").empty() && length > 0 && most >= length)
    faults.push_back({.key = "generation.max_new_tokens",
                      .reads = {"generation.prompts", "training.sequence_length", "phase"},
                      .text = fmt::format("max_new_tokens = {} must be below sequence_length = {}, "
                                          "which prompt and new tokens share",
                                          most, length)});
}

void spikes(const Values &values, Faults &faults) {
  const std::string onSpike = values.text("guard.on_spike");
  if (!onSpike.empty() && onSpike != "warn" && values.text("guard.action") == "off")
    faults.push_back({.key = "guard.on_spike",
                      .reads = {"guard.action"},
                      .text = fmt::format("on_spike is \"{}\", and guard.action = \"off\" looks "
                                          "for no spikes; set guard.action to \"stop\" or \"warn\"",
                                          onSpike)});
  if (const auto steps = readStepRanges(values.text("guard.skip_steps")); !steps)
    faults.push_back(
        {.key = "guard.skip_steps", .text = fmt::format("skip_steps: {}", steps.error().message)});
}

} // namespace

std::string nearestMultiples(int64_t n, int64_t value) {
  const int64_t below = value / n * n;
  return below ? fmt::format("{} or {}", below, below + n) : fmt::format("{}", n);
}

std::string SettingFault::named() const {
  const size_t dot = key.rfind('.');
  const std::string name = key.substr(dot + 1);
  // "min_lr and min_lr_ratio say the same" begins with another key of the section.
  const bool beginsWithKey =
      text.starts_with(name + " ") || text.find(" and " + name + " ") != std::string::npos;
  return beginsWithKey ? key.substr(0, dot + 1) + text : fmt::format("{}: {}", key, text);
}

std::vector<SettingFault> settingFaults(const SettingTable &table) {
  const Values values(table);
  Faults faults;
  for (auto *rule :
       {schedule, phaseSchedules, muon, sources, weights, phaseSources, shuffling, validation,
        keepBest, bestCheckpoint, intervals, exportCommand, generation, spikes})
    rule(values, faults);
  return faults;
}

int64_t checkpointInterval(const SettingTable &table, double stepSeconds) {
  const Setting *steps = table.find("checkpoint.interval"),
                *minutes = table.find("checkpoint.interval_minutes");
  const Values values(table);
  const int64_t interval = std::max<int64_t>(values.integer("checkpoint.interval"), 0);
  // A plan of an earlier release has no minutes.
  if (!minutes ||
      (steps && steps->origin != SettingOrigin::Default && steps->origin >= minutes->origin))
    return interval;
  const double seconds = 60 * values.number("checkpoint.interval_minutes");
  if (seconds <= 0)
    return 0;
  if (stepSeconds <= 0)
    return kStepsWithoutPrediction;
  constexpr double kMost = 1e12;
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(seconds / stepSeconds, kMost)));
}

std::string unsavedWarning(const SettingTable &table, double stepSeconds) {
  const auto steps = static_cast<double>(Values(table).integer("training.train_iters"));
  if (checkpointInterval(table, stepSeconds) > 0 || steps * stepSeconds <= kLongSeconds)
    return "";
  return fmt::format("checkpoint.interval = 0 saves only at the end, and the job is predicted to "
                     "take {:.3g} hours: whatever ends it before loses all of it; set interval, or "
                     "interval_minutes",
                     steps * stepSeconds / 3600);
}

Result<LrKeys> readLrKeys(const SettingTable &table, const std::string &section, LrKeys keys) {
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

Result<LrKeys> readPhaseLrKeys(const SettingTable &table, const std::string &name) {
  const std::string section = fmt::format("phase.{}", name);
  auto style = table.text(section + ".lr_style");
  LMC_TRY(style);
  auto whole = readLrKeys(table, "lr_schedule", {});
  LMC_TRY(whole);
  return readLrKeys(table, section,
                    {.style = *style,
                     .wsdDecayFraction = whole->wsdDecayFraction,
                     .wsdDecayStyle = whole->wsdDecayStyle});
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

} // namespace lmc
