#include "ground/config/Config.h"

#include "ground/config/Checks.h"
#include "ground/config/HuggingFace.h"
#include "ground/config/ModelFamily.h"
#include "ground/config/Parse.h"
#include "ground/config/TrainingPhases.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace lmc {
namespace {

using namespace lmc::config;

// Stores assignments in order. Adds keys with errors to `broken`.
void assignAll(const std::vector<Assignment> &assignments, Config &config, Provenance &provenance,
               Diagnostics &diagnostics) {
  for (const Assignment &assignment : assignments) {
    const std::string path = assignment.key->path();
    if (Result<void> assigned = assign(*assignment.key, assignment.value, config); !assigned) {
      diagnostics.error(assignment.location, "{}", assigned.error().message);
      provenance.broken.insert(path);
    } else {
      provenance.keys[path] = assignment.location;
    }
  }
}

// Returns the last assignment of model.config, or null. The config.json that it names must be read
// before any key is assigned, because all other keys override its values.
const Assignment *findModelConfig(const ParsedFile &file,
                                  const std::vector<Assignment> &overrides) {
  const Assignment *found = nullptr;
  for (const auto *assignments : {&file.assignments, &overrides})
    for (const Assignment &assignment : *assignments)
      if (assignment.key->path() == "model.config")
        found = &assignment;
  return found;
}

void assignModelConfig(const Assignment *from, const KeyTable &keys, Config &config,
                       Provenance &provenance, Diagnostics &diagnostics) {
  const auto *name = from ? std::get_if<std::string>(&from->value) : nullptr;
  if (!name || name->empty())
    return;
  const std::string path = (std::filesystem::path(config.directory) / *name).string();
  const size_t before = diagnostics.count();
  assignAll(importHuggingFaceConfig(path, keys, diagnostics), config, provenance, diagnostics);
  if (diagnostics.count() == before)
    return;
  // If config.json has an error, missing keys of [model] are not reported.
  for (const Key &key : keys)
    if (key.section == "model" && !provenance.given(key.path()))
      provenance.broken.insert(key.path());
}

} // namespace

static void setText(Config &config, std::string_view key, int64_t value) {
  for (Setting &setting : config.settings)
    if (setting.key == key)
      setting.value = fmt::format("{}", value);
}

int64_t DistributedConfig::shardRanks() const {
  if (strategy == ShardingStrategy::NoShard)
    return 1;
  const bool isHybrid = strategy == ShardingStrategy::HybridShard ||
                        strategy == ShardingStrategy::HybridShardZero2;
  if (shardGroup == kNodeGroup || (shardGroup == kAutoGroup && isHybrid))
    return devicesPerNode;
  return shardGroup == kWorldGroup || shardGroup == kAutoGroup ? ranks() : shardGroup;
}

bool DistributedConfig::dividesWeights() const {
  return strategy == ShardingStrategy::Zero3 || strategy == ShardingStrategy::HybridShard;
}

bool DistributedConfig::dividesGradients() const {
  return dividesWeights() || strategy == ShardingStrategy::Zero2 ||
         strategy == ShardingStrategy::HybridShardZero2;
}

bool DistributedConfig::choosesReduce() const {
  return reduce == "auto" && dividesGradients() && shardRanks() > 1;
}

ParameterGroup &Config::groupNamed(const std::string &name) {
  ParameterGroup &group = optimizer.groups[name];
  group.name = name;
  return group;
}

PhaseConfig &Config::phaseNamed(const std::string &name) {
  const auto found = std::ranges::find(phases, name, &PhaseConfig::name);
  if (found != phases.end())
    return *found;
  phases.emplace_back().name = name;
  return phases.back();
}

void setLossChunk(Config &config, int64_t tokens) {
  config.memory.lossChunk = tokens;
  setText(config, "memory.loss_chunk", tokens);
}

void setMicroBatchSize(Config &config, int64_t size) {
  TrainingConfig &training = config.training;
  training.microBatchSize = size;
  training.gradientAccumulationSteps = training.batchSize / config.distributed.ranks() / size;
  setText(config, "training.micro_batch_size", size);
}

Result<Config> loadConfig(const std::string &path, const std::vector<std::string> &overrides,
                          const ModelFamilies &families, const CheckDevice &checkDevice,
                          size_t phase, const ListParameters &listParameters) {
  KeyTable keys(families);
  Config config;
  for (const Key &key : keys)
    key.field(config); // this call sets the initial values that families define
  config.path = path;
  config.directory = std::filesystem::absolute(path).lexically_normal().parent_path().string();

  Diagnostics diagnostics;
  Result<std::string> text = readFile(path);
  if (!text) {
    diagnostics.error({path}, "{}", text.error().message);
    return Error{diagnostics.text()};
  }
  config.text = std::move(*text);

  const ParsedFile file = parseToml(config.text, path, keys, diagnostics);
  for (const Key &key : keys)
    key.field(config); // adds an entry to `config` for each [[table]], in the file's order
  const std::vector<Assignment> changes = parseOverrides(overrides, keys, diagnostics);
  Provenance provenance{
      .file = path, .sections = file.sections, .keys = {}, .broken = file.misspelt};
  assignModelConfig(findModelConfig(file, changes), keys, config, provenance, diagnostics);
  assignAll(file.assignments, config, provenance, diagnostics);
  assignAll(changes, config, provenance, diagnostics);
  for (const ModelFamily *family : families)
    if (family->name == config.model.architecture)
      config.model.family = family;

  if (file.valid) { // after a syntax error it is unknown which keys are set
    checkRequired(keys, config.model.family, provenance, diagnostics);
    config.phase = phase;
    resolveSteps({keys, provenance, config, checkDevice, diagnostics}, provenance, config);
    enterPhase(provenance, config);
    deriveDefaults(keys, provenance, config);
    settlePhase(provenance, config);
    checkTogether({keys, provenance, config, checkDevice, diagnostics});
    const bool hasPatterns = !config.optimizer.groups.empty() || !config.training.fp8Filter.empty();
    if (diagnostics.empty() && listParameters && hasPatterns)
      checkPatterns({keys, provenance, config, checkDevice, diagnostics}, listParameters(config));
  }
  if (!diagnostics.empty())
    return Error{diagnostics.text()};
  config.warnings = diagnostics.warnings();
  config.settingWarnings = diagnostics.settingWarnings();
  config.settings = settingsOf(keys, provenance, config);
  return config;
}

} // namespace lmc
