#include "ground/config/SettingRules.h"

#include "ground/settings/SettingTable.h"
#include "ground/support/Nearest.h"
#include "ground/support/Shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

namespace lmc {
namespace {

constexpr int64_t kStepsWithoutPrediction = 1000;
constexpr double kLongSeconds = 1800; // a longer run that saves only at its end gives a warning

struct Job {
  const Config &config;
  const SettingTable &table; // has the origin of each value
  std::vector<SettingFault> &faults;

  bool given(std::string_view key) const {
    const Setting *setting = table.find(key);
    return setting && setting->origin != SettingOrigin::Default;
  }

  // Adds a fault of `key`: a broken rule that also depends on the values of the keys `reads`.
  template <typename... Args>
  void fault(std::string key, std::vector<std::string> reads, fmt::format_string<Args...> text,
             Args &&...args) const {
    faults.push_back(
        {std::move(key), std::move(reads), fmt::format(text, std::forward<Args>(args)...)});
  }
};

// Returns the table `name` of a list, or one with defaults if a damaged plan lacks its keys.
template <typename Table>
const Table &tableOf(const std::map<std::string, Table> &all, const std::string &name) {
  static const Table none;
  const auto found = all.find(name);
  return found == all.end() ? none : found->second;
}

// Returns the sequence lengths of the phases in ascending order, or the job's if it has no phases.
std::vector<int64_t> sequenceLengths(const Config &config) {
  std::set<int64_t> lengths;
  for (const PhaseConfig &phase : config.phases)
    lengths.insert(phase.sequenceLength);
  if (lengths.empty())
    lengths.insert(config.training.sequenceLength);
  return {lengths.begin(), lengths.end()};
}

// Adds the faults of the learning-rate schedule whose keys begin with `section` ("phase.NAME.").
// Every fault then also depends on the keys `reads`.
void addLrFaults(const Job &job, const LrKeys &keys, int64_t lastStep, const std::string &section,
                 const std::vector<std::string> &reads) {
  for (SettingFault fault : lrFaults(keys, lastStep)) {
    fault.key = section + fault.key;
    for (std::string &key : fault.reads)
      key = section + key;
    fault.reads.insert(fault.reads.begin(), reads.begin(), reads.end());
    job.faults.push_back(std::move(fault));
  }
}

void schedule(const Job &job) {
  addLrFaults(job, lrKeys(job.config, job.table), job.config.training.trainIters, "lr_schedule.",
              {"training.train_iters"});
}

void phaseSchedules(const Job &job) {
  int64_t before = 0; // number of steps in all earlier phases
  for (const PhaseConfig &phase : job.config.phases) {
    const std::string section = fmt::format("phase.{}.", phase.name);
    int64_t steps = phase.steps;
    // The last phase has the rest of the run's steps.
    if (const int64_t last = job.config.training.trainIters; &phase == &job.config.phases.back())
      steps = last > before ? last - before : steps;
    before += steps;
    if (phase.lrStyle == "continue") {
      for (const char *key : {"lr", "min_lr", "warmup_iters"})
        if (job.given(section + key))
          job.fault(section + key, {section + "lr_style"},
                    "{0} is of a schedule of the phase's own; give lr_style too, or leave {0} out",
                    key);
    } else if (steps > 0) {
      addLrFaults(job, phaseLrKeys(job.config, job.table, phase), steps, section,
                  {section + "steps", section + "lr_style"});
    }
  }
}

void muon(const Job &job) {
  const OptimizerConfig &optimizer = job.config.optimizer;
  if (optimizer.type == "muon" && optimizer.muonLr > 0 && job.config.lrSchedule.lr == 0)
    job.fault(
        "optimizer.muon_lr", {"optimizer.type", "lr_schedule.lr"},
        "muon_lr = {} follows the schedule of lr_schedule.lr, which is 0; give an lr above 0, "
        "or leave out muon_lr",
        optimizer.muonLr);
}

// Reports a job that has both files in `key` ("data.train") and tables of `list` ("data.source").
void oneForm(const Job &job, const std::string &key, const std::string &list, const char *what) {
  const std::vector<std::string> tables = job.table.tablesOf(list);
  if (tables.empty() || job.table.files(key).empty())
    return;
  job.fault(key, {},
            "{0} and [[{1}]] ({2}) both say what to {3}; set the paths of a table, such as "
            "{1}.{4}.paths, or leave {0} out",
            key.substr(key.rfind('.') + 1), list, fmt::join(tables, ", "), what, tables[0]);
}

// Reports the tables that have no paths. `all` has the tables of the list `list`.
template <typename Table>
void emptyTables(const Job &job, const std::string &list, const std::map<std::string, Table> &all) {
  for (const std::string &name : job.table.tablesOf(list))
    if (tableOf(all, name).paths.empty())
      job.fault(fmt::format("{}.{}.paths", list, name), {},
                "[[{}]] {} has an empty list of paths; give it token files, or leave it out", list,
                name);
}

void sources(const Job &job) {
  oneForm(job, "data.train", "data.source", "train on");
  emptyTables(job, "data.source", job.config.data.sources);
  std::map<std::string, std::string> known; // the source of each path
  for (const std::string &name : job.table.tablesOf("data.source"))
    for (const std::string &path : tableOf(job.config.data.sources, name).paths)
      if (const auto [other, isNew] = known.emplace(path, name);
          !isNew && !job.config.data.allowRepeats)
        job.fault(
            fmt::format("data.source.{}.paths", name), {"data.allow_repeats"},
            "'{}' is in [[data.source]] {} already; list it once, or set data.allow_repeats = "
            "true",
            path, other->second);
}

// Reports weights that sharesOfWeights() refuses. The fault names the weight with the most digits.
void weights(const Job &job) {
  std::vector<double> numbers;
  SettingFault fault;
  size_t digits = 0;
  for (const std::string &name : job.table.tablesOf("data.source")) {
    const std::string key = fmt::format("data.source.{}.weight", name);
    numbers.push_back(tableOf(job.config.data.sources, name).weight);
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
    job.faults.push_back(std::move(fault));
  }
}

void phaseSources(const Job &job) {
  const std::vector<std::string> known = job.table.tablesOf("data.source");
  const std::map<std::string, SourceConfig> &all = job.config.data.sources;
  for (const PhaseConfig &phase : job.config.phases) {
    const auto report = [&](const std::string &text) {
      job.fault(fmt::format("phase.{}.sources", phase.name), {}, "{}", text);
    };
    std::vector<std::string> names;
    std::vector<double> numbers;
    for (const std::string &text : phase.sources) {
      const Result<PhaseSource> source = parsePhaseSource(text);
      if (!source) {
        report(source.error().message);
      } else if (known.empty() && all.contains(source->name)) {
        report(fmt::format("sources = {} are tables of [[data.source]], and data.train was given "
                           "after them; set the paths of a table, such as data.source.{}.paths",
                           fmt::join(phase.sources, ", "), source->name));
        break;
      } else if (std::ranges::find(known, source->name) == known.end()) {
        report(fmt::format("[[data.source]] has no '{}'{}", source->name,
                           suggestion(source->name, known)));
      } else if (std::ranges::find(names, source->name) != names.end()) {
        report(fmt::format("'{}' is listed twice", source->name));
      } else {
        names.push_back(source->name);
        numbers.push_back(source->weight.value_or(tableOf(all, source->name).weight));
      }
    }
    if (names.empty() || names.size() < phase.sources.size())
      continue; // the phase reads all sources, or a wrong entry was reported
    if (const auto shares = sharesOfWeights(numbers); !shares)
      report(shares.error().message);
  }
}

void shuffling(const Job &job) {
  const std::vector<int64_t> lengths = sequenceLengths(job.config);
  // A plan of an earlier release has no shuffle block: one sequence is then a block.
  const int64_t block = job.config.data.shuffleBlock ? job.config.data.shuffleBlock : lengths[0];
  const bool bestFit = job.config.data.packing == "best_fit";
  const std::string key = "data.shuffle_block";
  const std::vector<std::string> reads = {"training.sequence_length", "data.packing", "phase"};
  if (bestFit && lengths.size() > 1) {
    return job.fault(
        "data.packing", reads,
        "packing = \"best_fit\" fills sequences of one length, and the phases have {}; "
        "give all phases one length, or use packing = \"concatenate\"",
        fmt::join(lengths, " and "));
  }
  for (const int64_t length : lengths)
    if (length > 0 && block % length != 0)
      job.fault(key, reads, "shuffle_block = {} is no multiple of sequence_length = {}; use {}",
                block, length, nearestMultiples(length, block));
  if (bestFit && lengths[0] > 0 && block != lengths[0])
    job.fault(key, reads,
              "packing = \"best_fit\" fills sequences with whole documents, so shuffle_block = {} "
              "must be sequence_length = {}",
              block, lengths[0]);
}

void validation(const Job &job) {
  const char *const data = "data.validation";
  oneForm(job, data, "validation", "validate with");
  emptyTables(job, "validation", job.config.validations);
  const int64_t steps = job.config.monitoring.validationInterval;
  const bool trains =
      !job.table.files("data.train").empty() || !job.table.tablesOf("data.source").empty();
  const bool validates =
      !job.table.files(data).empty() || !job.table.tablesOf("validation").empty();
  const Setting *files = job.table.find(data);
  // `--set data.validation=[]` says that the job has no validation, so this is no mistake.
  const bool isWithout = files && (files->origin == SettingOrigin::CompileSet ||
                                   files->origin == SettingOrigin::RunSet);
  if (steps > 0 && trains && !validates && !isWithout)
    job.fault("monitoring.validation_interval", {"data.train", data},
              "validation_interval = {} needs data: give 'validation' in [data] or [[validation]], "
              "or set it to 0",
              steps);
}

void keepBest(const Job &job) {
  const std::string &best = job.config.checkpoint.keepBest;
  std::vector<std::string> names = job.table.tablesOf("validation");
  if (!job.table.files("data.validation").empty())
    names.insert(names.begin(), "data.validation");
  if (!best.empty() && std::ranges::find(names, best) == names.end())
    job.fault("checkpoint.keep_best", {"data.validation"},
              "keep_best = \"{}\" is no set of validation data; {}", best,
              names.empty() ? std::string("the job has none")
                            : fmt::format("there is {}", fmt::join(names, ", ")));
}

void bestCheckpoint(const Job &job) {
  if (job.config.checkpoint.saveBest && job.config.checkpoint.keepBest.empty())
    job.fault("checkpoint.save_best", {"checkpoint.keep_best"},
              "save_best saves the checkpoints of keep_best, and it names no set of validation "
              "data; set keep_best, such as \"data.validation\"");
}

void intervals(const Job &job) {
  const Setting *steps = job.table.find("checkpoint.interval"),
                *minutes = job.table.find("checkpoint.interval_minutes");
  if (steps && minutes && steps->origin == minutes->origin &&
      steps->origin != SettingOrigin::Default)
    job.fault("checkpoint.interval_minutes", {"checkpoint.interval"},
              "interval and interval_minutes say the same; give one of them");
}

void exportCommand(const Job &job) {
  if (!job.config.checkpoint.exportCommand.empty() && job.config.checkpoint.exportInterval == 0)
    job.fault("checkpoint.export_command", {"checkpoint.export_interval"},
              "export_command is run for each export, and there is none with export_interval = 0; "
              "set the interval");
}

void generation(const Job &job) {
  const int64_t most = job.config.generation.maxNewTokens;
  const int64_t length = sequenceLengths(job.config).front();
  if (!job.config.generation.prompts.empty() && length > 0 && most >= length)
    job.fault("generation.max_new_tokens",
              {"generation.prompts", "training.sequence_length", "phase"},
              "max_new_tokens = {} must be below sequence_length = {}, which prompt and new tokens "
              "share",
              most, length);
}

void spikes(const Job &job) {
  const std::string &onSpike = job.config.guard.onSpike;
  if (onSpike != "warn" && job.config.guard.action == "off")
    job.fault(
        "guard.on_spike", {"guard.action"},
        "on_spike is \"{}\", and guard.action = \"off\" looks for no spikes; set guard.action "
        "to \"stop\" or \"warn\"",
        onSpike);
  if (const auto steps = readStepRanges(job.config.guard.skipSteps); !steps)
    job.fault("guard.skip_steps", {}, "skip_steps: {}", steps.error().message);
}

} // namespace

std::string nearestMultiples(int64_t n, int64_t value) {
  const int64_t below = value / n * n;
  return below ? fmt::format("{} or {}", below, below + n) : fmt::format("{}", n);
}

std::vector<SettingFault> settingFaults(const Config &config, const SettingTable &table) {
  std::vector<SettingFault> faults;
  const Job job{config, table, faults};
  for (auto *rule :
       {schedule, phaseSchedules, muon, sources, weights, phaseSources, shuffling, validation,
        keepBest, bestCheckpoint, intervals, exportCommand, generation, spikes})
    rule(job);
  return faults;
}

int64_t checkpointInterval(const Config &config, const SettingTable &table, double stepSeconds) {
  const Setting *steps = table.find("checkpoint.interval"),
                *minutes = table.find("checkpoint.interval_minutes");
  // A plan of an earlier release lacks checkpoint.interval_minutes: its checkpoint.interval counts.
  if (!minutes ||
      (steps && steps->origin != SettingOrigin::Default && steps->origin >= minutes->origin))
    return config.checkpoint.interval;
  const double seconds = 60 * config.checkpoint.intervalMinutes;
  if (seconds <= 0)
    return 0;
  if (stepSeconds <= 0)
    return kStepsWithoutPrediction;
  constexpr double kMost = 1e12;
  return std::max<int64_t>(1, static_cast<int64_t>(std::min(seconds / stepSeconds, kMost)));
}

std::string unsavedWarning(const Config &config, const SettingTable &table, double stepSeconds) {
  const auto steps = static_cast<double>(config.training.trainIters);
  if (checkpointInterval(config, table, stepSeconds) > 0 || steps * stepSeconds <= kLongSeconds)
    return "";
  return fmt::format("checkpoint.interval = 0 saves only at the end, and the job is predicted to "
                     "take {:.3g} hours: whatever ends it before loses all of it; set interval, or "
                     "interval_minutes",
                     steps * stepSeconds / 3600);
}

// Adds the origin of each given key in `section` ("phase.NAME.") to keys.given. Returns `keys`.
static LrKeys withOrigins(LrKeys keys, const SettingTable &table, const std::string &section) {
  for (const Setting &setting : table.all())
    if (setting.key.starts_with(section) && setting.origin != SettingOrigin::Default)
      keys.given[setting.key.substr(section.size())] = static_cast<int>(setting.origin);
  return keys;
}

LrKeys lrKeys(const Config &config, const SettingTable &table) {
  return withOrigins(config.lrSchedule, table, "lr_schedule.");
}

LrKeys phaseLrKeys(const Config &config, const SettingTable &table, const PhaseConfig &phase) {
  return withOrigins({.style = phase.lrStyle,
                      .lr = phase.lr,
                      .minLr = phase.minLr,
                      .warmupIters = phase.warmupIters,
                      .wsdDecayFraction = config.lrSchedule.wsdDecayFraction,
                      .wsdDecayStyle = config.lrSchedule.wsdDecayStyle},
                     table, fmt::format("phase.{}.", phase.name));
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
