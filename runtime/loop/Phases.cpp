#include "runtime/loop/Phases.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace lmc {

uint64_t PhaseData::batchSize() const { return (*session->plan)->batch()->global_batch_size(); }

uint64_t PhaseData::tokensPerStep() const {
  return batchSize() * (*session->plan)->batch()->sequence_length();
}

bool readsSameStream(const TrainSettings &a, const TrainSettings &b) {
  return std::ranges::equal(a.trainData, b.trainData, [](const auto &one, const auto &other) {
    return one.name == other.name && one.weight == other.weight && one.paths == other.paths;
  });
}

// Returns the names of the sources that the phase chooses.
static std::vector<std::string> sourcesOf(const PhaseData &phase) {
  const Setting *setting =
      phase.session->settingTable.find(fmt::format("phase.{}.sources", phase.phase.name));
  return setting ? setting->values : std::vector<std::string>();
}

std::vector<DataLeg> legsOf(const std::vector<PhaseData> &phases, size_t current,
                            const CheckpointState &progress, std::vector<uint64_t> starts) {
  std::map<std::string, uint64_t> read; // tokens, by source
  for (const auto &[name, source] : progress.sources)
    read[name] = source.tokens;
  std::vector<DataLeg> legs;
  for (size_t i = current; i < phases.size(); ++i) {
    const PhaseData &phase = phases[i];
    DataLeg leg{i, std::max(phase.phase.firstStep, progress.step), phase.phase.lastStep, {}, 0, 0};
    if (i > current && leg.lastStep <= leg.firstStep)
      break; // the run ends before this phase
    leg.lastStep = std::max(leg.firstStep, leg.lastStep);
    const std::vector<SourceFacts> sources = phase.data->sources();
    if (i == current) {
      leg.starts = std::move(starts);
      leg.begin = progress.position;
    } else if (sourcesOf(phases[i - 1]) == sourcesOf(phase)) {
      leg.starts = legs.back().starts;
      leg.begin = legs.back().end;
    } else {
      for (const SourceFacts &source : sources)
        leg.starts.push_back(read[source.name]);
    }
    leg.end = leg.begin + (leg.lastStep - leg.firstStep) * phase.tokensPerStep();
    phase.data->startAt(leg.starts);
    for (size_t source = 0; source < sources.size(); ++source)
      read[sources[source].name] = phase.data->tokensRead(source, leg.end);
    legs.push_back(std::move(leg));
  }
  return legs;
}

// Returns the weight for `source`, rounded down to three digits, that lowers the source's share of
// a mixture from `shareNow` to at most `share`. Returns nullopt if no weight does that.
static std::optional<double> weightFor(double share, const SourceOptions &source, double shareNow) {
  if (share <= 0 || shareNow >= 1)
    return std::nullopt;
  const double others = source.weight / shareNow * (1 - shareNow);
  const double weight = share / (1 - share) * others;
  const double unit = std::pow(10, std::floor(std::log10(weight)) - 2);
  return std::floor(weight / unit) * unit;
}

// Returns the error for a leg (Phases.h) that reads source number `index` beyond its max_epochs.
static Error tooManyEpochs(const PhaseData &phase, const DataLeg &leg, size_t index) {
  const DataSource &data = *phase.data;
  const SourceFacts source = data.sources()[index];
  const double limit = source.maxEpochs * double(source.tokensPerEpoch);
  const uint64_t before = data.tokensRead(index, leg.begin);
  const uint64_t after = data.tokensRead(index, leg.end);
  // Finds, by bisection, the largest number of steps that stays within max_epochs.
  uint64_t fits = leg.firstStep, tooMany = leg.lastStep;
  while (tooMany - fits > 1) {
    const uint64_t middle = fits + (tooMany - fits) / 2;
    const uint64_t position = leg.begin + (middle - leg.firstStep) * phase.tokensPerStep();
    (double(data.tokensRead(index, position)) <= limit ? fits : tooMany) = middle;
  }
  // A source may exceed its exact share by less than one block of data, so one block is subtracted.
  const double left = limit - double(before) - double(data.blockLength());
  const auto weight = weightFor(left / double(leg.end - leg.begin),
                                phase.session->settings.trainData[index], source.share);
  const std::string key = fmt::format("{}.{}", kSources, source.name);
  const double epochs = double(after) / double(source.tokensPerEpoch);
  std::vector<std::string> ways = {"give it more data", fmt::format("set {}.max_epochs={:.2f}", key,
                                                                    std::ceil(epochs * 100) / 100)};
  if (weight && phase.phase.name.empty())
    ways.push_back(fmt::format("{}.weight={:.3g}", key, *weight));
  else if (weight)
    ways.push_back(
        fmt::format("give it the weight {:.3g} in phase.{}.sources", *weight, phase.phase.name));
  if (fits > leg.firstStep)
    ways.push_back(fmt::format("stop at --steps={}", fits));
  return userError(
      "{}.max_epochs is {}, and {} steps{} read the source {:.2f} times: {:.4g}% of {} tokens are "
      "{}{}, and it has {} in whole blocks; {}",
      key, source.maxEpochs, leg.lastStep,
      phase.phase.name.empty() ? "" : fmt::format(" (to the end of phase {})", phase.phase.name),
      epochs, source.share * 100, leg.end - leg.begin, after - before,
      before == 0 ? "" : fmt::format(", after {} of earlier starts", before), source.tokensPerEpoch,
      fmt::join(ways, ", or "));
}

Result<void> checkEpochs(const std::vector<PhaseData> &phases, const std::vector<DataLeg> &legs) {
  for (const DataLeg &leg : legs) {
    if (leg.begin == leg.end) // nothing is read
      continue;
    const PhaseData &phase = phases[leg.phase];
    phase.data->startAt(leg.starts);
    const std::vector<SourceFacts> sources = phase.data->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      const double limit = sources[i].maxEpochs * double(sources[i].tokensPerEpoch);
      if (sources[i].maxEpochs > 0 && double(phase.data->tokensRead(i, leg.end)) > limit)
        return tooManyEpochs(phase, leg, i);
    }
  }
  return {};
}

Result<void> checkRepeats(const std::vector<PhaseData> &phases,
                          std::vector<std::string> &warnings) {
  for (const PhaseData &phase : phases)
    for (const SourceFacts &source : phase.data->sources()) {
      const uint64_t samples = source.tokensPerEpoch / phase.data->sequenceLength();
      const double wanted = double(phase.batchSize()) * source.share;
      if (wanted <= double(samples))
        continue;
      const std::string arithmetic = fmt::format(
          "{} has {} sequences of {} tokens, and one step{} reads {:.4g}{} (training.batch_size), "
          "so it reads the data {:.2f} times",
          source.key, samples, phase.data->sequenceLength(),
          phase.phase.name.empty() ? "" : fmt::format(" of phase {}", phase.phase.name), wanted,
          source.name.empty() ? "" : fmt::format(" of its {} there", phase.batchSize()),
          wanted / double(samples));
      if (!phase.session->settings.config.data.allowRepeats)
        return userError("{}; give more data, compile with a batch_size of at most {}, or set "
                         "data.allow_repeats = true",
                         arithmetic, uint64_t(double(samples) / source.share));
      warnings.push_back(arithmetic);
    }
  return {};
}

std::vector<std::string> jobFacts(const std::vector<PhaseData> &phases,
                                  const std::vector<DataLeg> &legs, uint64_t totalSteps) {
  std::vector<std::string> facts;
  for (const DataLeg &leg : legs) {
    const PhaseData &phase = phases[leg.phase];
    phase.data->startAt(leg.starts);
    const std::string prefix =
        phase.phase.name.empty() ? "" : fmt::format("phase {}: ", phase.phase.name);
    const std::vector<SourceFacts> sources = phase.data->sources();
    for (size_t i = 0; i < sources.size(); ++i) {
      const SourceFacts &source = sources[i];
      std::vector<std::string> paths = source.paths;
      if (paths.size() > 3)
        paths = {paths.front(), "...", paths.back()};
      const std::string padded =
          phase.session->settings.config.data.packing == "best_fit"
              ? fmt::format(" (best fit: {:.2f}% padding, {} documents longer than a block)",
                            100 * double(source.padding) / double(source.tokensPerEpoch),
                            source.cutDocuments)
              : "";
      facts.push_back(fmt::format(
          "data: {}{}{} tokens in {} file(s) ({}), {} in whole blocks{}, read {:.2f} times by {} "
          "steps",
          prefix,
          source.name.empty() ? ""
                              : fmt::format("{}, {:.4g}% of the {}: ", source.name,
                                            source.share * 100, prefix.empty() ? "run" : "phase"),
          source.tokens, source.paths.size(), fmt::join(paths, ", "), source.tokensPerEpoch, padded,
          double(phase.data->tokensRead(i, leg.end)) / double(source.tokensPerEpoch),
          leg.lastStep));
    }
  }
  double tokens = 0;
  for (const PhaseData &phase : phases)
    tokens += double(phase.phase.lastStep - phase.phase.firstStep) * double(phase.tokensPerStep());
  const double parameters = double((*phases.front().session->plan)->model()->parameters());
  facts.push_back(fmt::format("job: {} steps, {:.0f} tokens, {:.1f} per parameter", totalSteps,
                              tokens, tokens / parameters));
  return facts;
}

} // namespace lmc
