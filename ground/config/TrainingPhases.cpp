#include "ground/config/TrainingPhases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lmc {

int64_t stepsBefore(const Config &config, size_t phase) {
  int64_t steps = 0;
  for (size_t i = 0; i < phase; ++i)
    steps += config.phases[i].steps;
  return steps;
}

namespace config {
namespace {

constexpr int64_t kMostBlock = 1 << 26; // tokens, the maximum of data.shuffle_block

std::string keyOf(const PhaseConfig &phase, const char *name) {
  return fmt::format("phase.{}.{}", phase.name, name);
}

// Returns how many steps read `tokens` tokens, rounded up. Sizes of 0 were reported as errors.
int64_t stepsFor(int64_t tokens, int64_t batchSize, int64_t sequenceLength) {
  const int64_t perStep = std::max<int64_t>(batchSize * sequenceLength, 1);
  return (tokens + perStep - 1) / perStep;
}

// Copies values from [training] to the phase if the phase does not give them.
void inherit(const Provenance &provenance, const TrainingConfig &training, PhaseConfig &phase) {
  const std::tuple<const char *, int64_t *, int64_t> values[] = {
      {"sequence_length", &phase.sequenceLength, training.sequenceLength},
      {"batch_size", &phase.batchSize, training.batchSize},
      {"micro_batch_size", &phase.microBatchSize, training.microBatchSize}};
  for (const auto &[name, field, value] : values)
    if (!provenance.given(keyOf(phase, name)))
      *field = value;
}

// Returns true if the phase has exactly one of `steps`, `tokens` and `share`; else reports it.
bool hasOneExtent(const CheckedJob &job, const PhaseConfig &phase) {
  std::vector<std::string> given;
  for (const char *name : {"steps", "tokens", "share"}) {
    if (job.provenance.broken.count(keyOf(phase, name)))
      return false;
    if (job.provenance.given(keyOf(phase, name)))
      given.push_back(name);
  }
  if (given.empty())
    job.error("phase." + phase.name, "[[phase]] {} has none of steps, tokens and share; give one",
              phase.name);
  else if (given.size() > 1)
    job.error(keyOf(phase, given[1].c_str()), "[[phase]] {} has both {} and {}; give one of them",
              phase.name, given[0], given[1]);
  return given.size() == 1;
}

// Sets the number of steps of all phases. Returns false if it reports an error.
bool resolvePhases(const CheckedJob &job, Config &config) {
  const TrainingConfig &training = config.training;
  bool sound = job.sound({"training.sequence_length", "training.batch_size", "training.train_iters",
                          "training.train_tokens"});
  double shares = 0;
  int64_t before = 0; // steps of earlier phases that give a share of train_iters
  for (PhaseConfig &phase : config.phases) {
    inherit(job.provenance, training, phase);
    if (!hasOneExtent(job, phase)) {
      sound = false;
      continue;
    }
    if (phase.tokens > 0)
      phase.steps = stepsFor(phase.tokens, phase.batchSize, phase.sequenceLength);
    if (phase.share == 0)
      continue;
    if (training.trainTokens > 0) {
      const double perStep = double(phase.batchSize) * double(phase.sequenceLength);
      phase.steps = std::llround(phase.share * double(training.trainTokens) / perStep);
    } else if (training.trainIters > 0) {
      // Rounds sums of shares, not each share: if all shares sum to 1, no step is lost.
      shares += phase.share;
      phase.steps = std::llround(shares * double(training.trainIters)) - before;
      before += phase.steps;
    } else {
      job.error(keyOf(phase, "share"),
                "share = {} is a part of training.train_tokens or training.train_iters; give one "
                "of them",
                phase.share);
      sound = false;
      continue;
    }
    if (phase.steps < 1) {
      job.error(keyOf(phase, "share"), "share = {} is less than one step; give a larger share",
                phase.share);
      sound = false;
    }
  }
  return sound;
}

// Reports phases whose tokens do not add up to train_tokens, to within one step per phase.
void checkTokens(const CheckedJob &job, const Config &config) {
  int64_t tokens = 0, rounding = 0;
  for (const PhaseConfig &phase : config.phases) {
    tokens += phase.steps * phase.batchSize * phase.sequenceLength;
    rounding += phase.batchSize * phase.sequenceLength;
  }
  const int64_t wanted = config.training.trainTokens;
  if (wanted > 0 && std::abs(tokens - wanted) > rounding)
    job.error("training.train_tokens",
              "train_tokens = {}, and the phases have {} tokens together; change a phase, or leave "
              "train_tokens out",
              wanted, tokens);
}

} // namespace

void resolveSteps(const CheckedJob &job, Provenance &provenance, Config &config) {
  TrainingConfig &training = config.training;
  // If the file gives one of train_iters and train_tokens, and --set the other, --set's key wins.
  const auto isOverride = [&](const char *key) {
    const auto found = provenance.keys.find(key);
    return found != provenance.keys.end() && found->second.file == kOverrides;
  };
  if (provenance.given("training.train_iters") && training.trainTokens > 0) {
    const bool setsSteps = isOverride("training.train_iters"),
               setsTokens = isOverride("training.train_tokens");
    if (setsTokens && !setsSteps)
      provenance.keys.erase("training.train_iters");
    if (setsSteps && !setsTokens) {
      provenance.keys.erase("training.train_tokens");
      training.trainTokens = 0;
    }
  }
  const bool hasSteps = provenance.given("training.train_iters");
  if (hasSteps && training.trainTokens > 0 && job.sound({"training.train_iters"}))
    job.error("training.train_tokens",
              "train_tokens and train_iters are both given; leave one out");
  if (!config.phases.empty()) {
    if (!resolvePhases(job, config)) {
      provenance.broken.insert("training.train_iters");
      return;
    }
    const int64_t sum = stepsBefore(config, config.phases.size());
    if (hasSteps && sum != training.trainIters)
      job.error("training.train_iters",
                "train_iters = {}, and the phases have {} steps together; give train_iters = {}, "
                "or leave it out",
                training.trainIters, sum, sum);
    training.trainIters = sum;
    checkTokens(job, config);
  } else if (training.trainTokens > 0) {
    if (job.sound({"training.sequence_length", "training.batch_size"}))
      training.trainIters =
          stepsFor(training.trainTokens, training.batchSize, training.sequenceLength);
    else
      provenance.broken.insert("training.train_iters");
  } else if (!hasSteps && !provenance.broken.count("training.train_iters")) {
    provenance.broken.insert("training.train_iters");
    job.error("training.train_iters", "missing required key 'train_iters' in [training]");
  }
}

void enterPhase(Provenance &provenance, Config &config) {
  if (config.phases.empty())
    return;
  const PhaseConfig &phase = config.phases.at(config.phase);
  TrainingConfig &training = config.training;
  training.batchSize = phase.batchSize;
  training.microBatchSize = phase.microBatchSize;
  training.sequenceLength =
      std::ranges::max(config.phases, {}, &PhaseConfig::sequenceLength).sequenceLength;
  // Makes errors about the batch point to the line of the phase's key.
  for (const char *name : {"sequence_length", "batch_size", "micro_batch_size"})
    if (const auto given = provenance.keys.find(keyOf(phase, name)); given != provenance.keys.end())
      provenance.keys[fmt::format("training.{}", name)] = given->second;
}

void settlePhase(const Provenance &provenance, Config &config) {
  if (config.phases.empty())
    return;
  config.training.sequenceLength = config.phases[config.phase].sequenceLength;
  if (provenance.given("data.shuffle_block"))
    return;
  config.data.shuffleBlock = 1;
  for (const PhaseConfig &phase : config.phases)
    if (config.data.shuffleBlock <= kMostBlock) // checkPhases() reports a block over kMostBlock
      config.data.shuffleBlock =
          std::lcm(config.data.shuffleBlock, std::max<int64_t>(phase.sequenceLength, 1));
}

void checkPhases(const CheckedJob &job) {
  if (!job.config.phases.empty() && job.config.data.shuffleBlock > kMostBlock)
    job.error("phase",
              "the lengths of the phases fit only into blocks of more than {} tokens; give lengths "
              "that divide each other",
              kMostBlock);
}

} // namespace config
} // namespace lmc
