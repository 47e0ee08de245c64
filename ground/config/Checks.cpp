#include "ground/config/Checks.h"

#include "ground/config/HuggingFace.h"
#include "ground/config/ParameterGroups.h"
#include "ground/config/SettingRules.h"
#include "ground/config/TrainingPhases.h"
#include "ground/config/Values.h"
#include "ground/plan/Names.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc::config {
std::string nearestDivisors(int64_t n, int64_t value) {
  int64_t below = 0, above = 0;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0)
      continue;
    for (int64_t divisor : {d, n / d}) {
      if (divisor <= value)
        below = std::max(below, divisor);
      if (divisor >= value && (above == 0 || divisor < above))
        above = divisor;
    }
  }
  if (below && above && below != above)
    return fmt::format("{} or {}", below, above);
  return fmt::format("{}", below ? below : above);
}

namespace {

constexpr int64_t kLargestFirstGuess = 8;

void heads(const CheckedJob &job) {
  const ModelConfig &model = job.config.model;
  if (job.sound({"model.hidden_size", "model.num_attention_heads", "model.head_dim"})) {
    const bool mayGive = job.keys.find("model", "head_dim")->isOf(*model.family);
    const bool isGiven = mayGive && job.provenance.given("model.head_dim");
    if (!isGiven && model.hiddenSize % model.numAttentionHeads != 0)
      job.error("model.num_attention_heads",
                "num_attention_heads = {} does not divide hidden_size = {}; use {} heads{}",
                model.numAttentionHeads, model.hiddenSize,
                nearestDivisors(model.hiddenSize, model.numAttentionHeads),
                mayGive ? ", or give head_dim" : "");
    else if (model.headDim % 2 != 0)
      job.error(isGiven ? "model.head_dim" : "model.num_attention_heads", "{} = {} is odd; {}",
                mayGive ? "head_dim" : "the width of a head, hidden_size / num_attention_heads",
                model.headDim,
                mayGive ? "RoPE turns pairs, so it must be even" : "it must be even");
  }
  if (job.sound({"model.num_attention_heads", "model.num_key_value_heads"}) &&
      model.numAttentionHeads % model.numKeyValueHeads != 0)
    job.error("model.num_key_value_heads",
              "num_key_value_heads = {} does not divide num_attention_heads = {}; use {}",
              model.numKeyValueHeads, model.numAttentionHeads,
              nearestDivisors(model.numAttentionHeads, model.numKeyValueHeads));
}

// Reports keys that only other families have: they would have no effect.
void familyKeys(const CheckedJob &job) {
  for (const Key &key : job.keys) {
    if (key.isOf(*job.config.model.family) || !job.provenance.given(key.path()))
      continue;
    std::vector<std::string> names;
    for (const ModelFamily *family : key.families)
      names.push_back(fmt::format("\"{}\"", family->name));
    job.error(key.path(), "{} is a key of architecture {}, not of \"{}\"", key.name,
              listed(names, "and"), job.config.model.family->name);
  }
}

// Reports keys that the Hugging Face class of the export ignores: the exported model would differ.
void exported(const CheckedJob &job) {
  for (const std::string &path : job.provenance.broken)
    if (path.rfind("model.", 0) == 0)
      return;
  const Export as = exportOf(job.config.model);
  Config initial, config = job.config;
  for (const std::string &name : as.family->ignored) {
    const Key &key = *job.keys.find("model", name);
    if (resolvedSetting(key, config).value != resolvedSetting(key, initial).value)
      job.error(key.path(),
                "{} does not go with {}: checkpoints could not be exported, as Hugging Face's {} "
                "ignores it",
                name, as.reason, as.family->className);
  }
}

// Reports exports that lmc-run would refuse.
void exports(const CheckedJob &job) {
  if (!job.sound({"model.architecture", "model.embedding_norm", "checkpoint.export_interval"}) ||
      job.config.checkpoint.exportInterval == 0)
    return;
  if (const std::string reason = notExportable(job.config.model); !reason.empty())
    job.error("checkpoint.export_interval",
              "export_interval = {} asks for exports, but {}; set it to 0",
              job.config.checkpoint.exportInterval, reason);
}

void ofFamily(const CheckedJob &job) {
  if (job.sound({"model.architecture"}) && job.config.model.family->check)
    job.config.model.family->check(job);
}

void ropeScaling(const CheckedJob &job) {
  const RopeScaling &scaling = job.config.model.ropeScaling;
  if (!job.sound({"model.rope_scaling.rope_type"}))
    return;
  if (scaling.type == RopeScalingType::None) {
    // Reports keys of [model.rope_scaling] that have no effect because rope_type is missing.
    for (const Key &key : job.keys)
      if (!job.provenance.given("model.rope_scaling.rope_type") &&
          key.section == "model.rope_scaling" && key.name != "rope_type" &&
          job.provenance.given(key.path()))
        return job.error("model.rope_scaling.rope_type",
                         "[model.rope_scaling] has {} but no rope_type, so it would do nothing; "
                         "give one of linear, llama3, dynamic, yarn",
                         key.name);
    return;
  }
  if (job.sound({"model.rope_scaling.factor"}) &&
      !job.provenance.given("model.rope_scaling.factor"))
    job.error("model.rope_scaling.rope_type",
              "[model.rope_scaling] needs 'factor': how much longer the context becomes");
  if (scaling.type == RopeScalingType::Dynamic &&
      job.sound({"model.rope_scaling.original_max_position_embeddings",
                 "model.max_position_embeddings", "training.sequence_length"}) &&
      scaling.originalMaxPositionEmbeddings != job.config.model.maxPositionEmbeddings)
    job.error("model.rope_scaling.original_max_position_embeddings",
              "rope_type \"dynamic\" starts from max_position_embeddings = {}; leave "
              "original_max_position_embeddings = {} out",
              job.config.model.maxPositionEmbeddings, scaling.originalMaxPositionEmbeddings);
  if (scaling.type == RopeScalingType::Llama3 &&
      job.sound({"model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor"}) &&
      scaling.lowFreqFactor >= scaling.highFreqFactor)
    job.error("model.rope_scaling.low_freq_factor",
              "low_freq_factor = {} must be below high_freq_factor = {}", scaling.lowFreqFactor,
              scaling.highFreqFactor);
  if (scaling.type == RopeScalingType::Yarn &&
      job.sound({"model.rope_scaling.beta_fast", "model.rope_scaling.beta_slow"}) &&
      scaling.betaSlow >= scaling.betaFast)
    job.error("model.rope_scaling.beta_slow", "beta_slow = {} must be below beta_fast = {}",
              scaling.betaSlow, scaling.betaFast);
}

void positions(const CheckedJob &job) {
  if (job.sound({"training.sequence_length", "model.max_position_embeddings"}) &&
      job.config.training.sequenceLength > job.config.model.maxPositionEmbeddings)
    job.error("training.sequence_length",
              "sequence_length = {} is more than max_position_embeddings = {}",
              job.config.training.sequenceLength, job.config.model.maxPositionEmbeddings);
}

void batch(const CheckedJob &job) {
  if (!job.sound({"training.batch_size", "training.micro_batch_size", "distributed.nodes",
                  "distributed.devices_per_node"}))
    return;
  const TrainingConfig &training = job.config.training;
  const int64_t ranks = job.config.distributed.ranks();
  const int64_t gbs = training.batchSize, mbs = training.microBatchSize;
  if (gbs % ranks != 0) {
    job.error("training.batch_size",
              "batch_size = {} (GBS) cannot be shared by {} devices; use batch_size = {}", gbs,
              ranks, nearestMultiples(ranks, gbs));
  } else if (gbs % (mbs * ranks) != 0) {
    job.error("training.micro_batch_size",
              "micro_batch_size = {} (MBS) x {} devices does not divide batch_size = {} (GBS), so "
              "there is no whole number of accumulation steps (GAS); use micro_batch_size = {} or "
              "batch_size = {}",
              mbs, ranks, gbs, nearestDivisors(gbs / ranks, mbs),
              nearestMultiples(mbs * ranks, gbs));
  }
}

void shardGroup(const CheckedJob &job) {
  if (!job.sound({"distributed.nodes", "distributed.devices_per_node", "distributed.strategy",
                  "distributed.shard_group"}))
    return;
  const DistributedConfig &distributed = job.config.distributed;
  const int64_t group = distributed.shardRanks(), ranks = distributed.ranks();
  if (group < 1 || ranks % group != 0)
    job.error("distributed.shard_group",
              "shard_group = {} does not divide {} devices; use shard_group = {}", group, ranks,
              nearestDivisors(ranks, group));
}

void expertParallel(const CheckedJob &job) {
  if (!job.sound({"distributed.nodes", "distributed.devices_per_node", "distributed.strategy",
                  "distributed.shard_group", "distributed.expert_parallel"}))
    return;
  const DistributedConfig &distributed = job.config.distributed;
  const int64_t parts = distributed.expertParallel, group = distributed.shardRanks();
  if (parts == 1)
    return;
  const char *key = "distributed.expert_parallel";
  const bool hasExperts = std::ranges::any_of(job.keys, [&](const Key &each) {
    return each.name == "num_experts_per_tok" && each.isOf(*job.config.model.family);
  });
  if (!hasExperts)
    job.error(key, "expert_parallel = {} is for models with experts, and \"{}\" has none", parts,
              job.config.model.family->name);
  else if (distributed.strategy == ShardingStrategy::NoShard)
    job.error(key,
              "expert_parallel = {} divides experts between devices, which strategy = \"no_shard\" "
              "does not; use strategy = \"zero1\", or expert_parallel = 1",
              parts);
  else if (group % parts != 0)
    job.error(key,
              "expert_parallel = {} does not divide the {} devices that divide the state; use "
              "expert_parallel = {}",
              parts, group, nearestDivisors(group, parts));
  else if (job.sound({"optimizer.type"}) && job.config.optimizer.type == "muon" && group != parts)
    job.error(key,
              "with optimizer.type = \"muon\", the ranks that divide the state divide the experts "
              "too; use expert_parallel = {0}, shard_group = {1} or expert_parallel = 1",
              group, parts);
}

void expertCapacity(const CheckedJob &job) {
  const char *key = "distributed.expert_capacity";
  const double capacity = job.config.distributed.expertCapacity;
  if (capacity == 0 || !job.sound({"distributed.expert_parallel", key}))
    return;
  if (capacity < 1)
    job.error(key,
              "expert_capacity = {} is less than 1, and a device gets as many choices as its own "
              "tokens have if all experts are equally busy; use 1 or more, or 0 for all at once",
              capacity);
  else if (job.config.distributed.expertParallel == 1)
    job.error(key,
              "expert_capacity = {} bounds what a device gets of other devices' choices, and "
              "expert_parallel = 1 leaves each its own; leave it out, or give expert_parallel",
              capacity);
}

void optimizer(const CheckedJob &job) {
  if (job.sound({"optimizer.type", "training.compute_dtype"}) &&
      job.config.optimizer.type == "adamw8bit" && job.config.training.computeDType == DataType::F64)
    job.error(
        "optimizer.type",
        "adamw8bit computes in f32, not in compute_dtype = \"f64\"; use adamw, or f32 or bf16");
  const int64_t multiple = job.config.target.intermediateMultiple;
  if (job.sound({"optimizer.type", "model.intermediate_size",
                 "target.make_intermediate_size_divisible_by"}) &&
      job.config.optimizer.type == "adamw8bit" && multiple > 0 &&
      job.config.model.intermediateSize % multiple != 0)
    job.error("target.make_intermediate_size_divisible_by",
              "intermediate_size = {} cannot be padded to a multiple of {} with adamw8bit, whose "
              "moments have one scale for 256 consecutive elements: padding would change which "
              "elements share one; leave the key out, or use adamw",
              job.config.model.intermediateSize, multiple);
}

void fp8(const CheckedJob &job) {
  const TrainingConfig &training = job.config.training;
  if (!job.sound({"training.fp8", "training.fp8_filter", "training.compute_dtype", "memory.store"}))
    return;
  if (training.fp8 == "none" && !training.fp8Filter.empty())
    job.error(
        "training.fp8_filter",
        "fp8_filter names weights that stay in the compute dtype, and with fp8 = \"none\" all do; "
        "leave it out, or give fp8 = \"tensor\"");
  if (job.config.memory.store == "fp8" && training.computeDType == DataType::F64)
    job.error("memory.store",
              "store = \"fp8\" needs compute_dtype = \"bf16\" or \"f32\", not \"f64\"");
  if (training.fp8 != "none" && training.computeDType == DataType::F64)
    job.error("training.fp8", "fp8 = \"{}\" needs compute_dtype = \"bf16\" or \"f32\", not \"f64\"",
              training.fp8);
}

void groups(const CheckedJob &job) {
  for (const auto &[name, group] : job.config.optimizer.groups) {
    const std::string patterns = names::groupSetting(group.name, "parameters"),
                      bits = names::groupSetting(group.name, "optim_bits");
    if (group.parameters.empty() && !job.provenance.broken.count(patterns))
      job.error(patterns,
                "[[optimizer.group]] {} has an empty list of parameters; give it patterns of their "
                "names, or leave it out",
                name);
    if (job.provenance.broken.count(bits) || !job.sound({"optimizer.type"}))
      continue;
    if (group.optimBits != 8 && group.optimBits != 32)
      job.error(bits, "optim_bits = {} is neither 8 nor 32", group.optimBits);
    else if (group.optimBits == 8 && job.config.optimizer.type != "adamw8bit")
      job.error(bits,
                "optim_bits = 8 needs optimizer.type = \"adamw8bit\", and it is \"{}\"; leave "
                "optim_bits out, or give adamw8bit and optim_bits = 32 in the groups that keep f32 "
                "moments",
                job.config.optimizer.type);
  }
}

void intermediatePadding(const CheckedJob &job) {
  const char *key = "target.make_intermediate_size_divisible_by";
  const int64_t multiple = job.config.target.intermediateMultiple;
  if (job.sound({"model.architecture", key}) && multiple > 1 && !job.config.model.family->mayPadMlp)
    job.error(key,
              "make_intermediate_size_divisible_by = {} pads MLPs with a gate, which {} does not "
              "have; leave it out",
              multiple, job.config.model.family->name);
}

// Reports settings that lmc-run would refuse, by the rules of SettingRules.h.
void ofRun(const CheckedJob &job) {
  const auto isBroken = [&](const std::string &key) {
    const auto found = job.provenance.broken.lower_bound(key);
    return found != job.provenance.broken.end() && (*found == key || found->starts_with(key + "."));
  };
  const SettingTable table(settingsOf(job.keys, job.provenance, job.config));
  for (const SettingFault &fault : settingFaults(job.config, table)) {
    if (isBroken(fault.key) || std::ranges::any_of(fault.reads, isBroken))
      continue;
    if (fault.isWarning)
      job.diagnostics.settingWarning(job.provenance.of(fault.key), fault.named());
    else
      job.error(fault.key, "{}", fault.text);
  }
}

void device(const CheckedJob &job) {
  if (!job.checkDevice || !job.sound({"target.device"}))
    return;
  if (Result<void> valid = job.checkDevice(job.config.target.device); !valid)
    job.error("target.device", "target.device is \"{}\"; {}", job.config.target.device,
              valid.error().message);
}

double numberOf(const KeyTable &keys, const std::string &path, Config &config) {
  const size_t dot = path.rfind('.');
  const Field field = keys.find(path.substr(0, dot), path.substr(dot + 1))->field(config);
  if (const auto *integer = std::get_if<int64_t *>(&field))
    return double(**integer);
  return *std::get<double *>(field);
}

} // namespace

bool CheckedJob::sound(std::initializer_list<const char *> paths) const {
  return std::none_of(paths.begin(), paths.end(),
                      [&](const char *path) { return provenance.broken.count(path); });
}

Location Provenance::of(const std::string &path) const {
  if (const auto key = keys.find(path); key != keys.end())
    return key->second;
  for (size_t dot = path.rfind('.'); dot != std::string::npos && dot > 0;
       dot = path.rfind('.', dot - 1))
    if (const auto section = sections.find(path.substr(0, dot)); section != sections.end())
      return section->second;
  return {file, 1, 1};
}

void checkRequired(const KeyTable &keys, const ModelFamily *family, Provenance &provenance,
                   Diagnostics &diagnostics) {
  for (const Key &key : keys) {
    if (family && family->intermediateRatio && key.path() == "model.intermediate_size")
      continue;
    if (family ? !key.isOf(*family) : !key.families.empty())
      continue;
    if (!key.required || provenance.given(key.path()) || provenance.broken.count(key.path()))
      continue;
    provenance.broken.insert(key.path());
    diagnostics.error(provenance.of(key.path()), "missing required key '{}' in {}", key.name,
                      headerText(key.section));
  }
}

std::vector<Setting> settingsOf(const KeyTable &keys, const Provenance &provenance, Config config) {
  std::vector<Setting> settings;
  for (const Key &key : keys) {
    if (config.model.family ? !key.isOf(*config.model.family) : !key.families.empty())
      continue;
    Setting &setting = settings.emplace_back(resolvedSetting(key, config));
    if (const auto given = provenance.keys.find(setting.key); given != provenance.keys.end())
      setting.origin =
          given->second.file == kOverrides ? SettingOrigin::CompileSet : SettingOrigin::File;
    else if (key.runTimeIfGiven)
      setting.runTime = false;
  }
  return settings;
}

void deriveDefaults(const KeyTable &keys, const Provenance &provenance, Config &config) {
  ModelConfig &model = config.model;
  TrainingConfig &training = config.training;
  // `keys` lists a key after the key from which its default derives. The exception is
  // sequence_length, whose default derives from no key, so that its value is known already.
  for (const Key &key : keys) {
    if (key.derived.key.empty() || provenance.given(key.path()))
      continue;
    const double value = numberOf(keys, key.derived.key, config) / key.derived.divisor;
    const Field field = key.field(config);
    if (auto *const *integer = std::get_if<int64_t *>(&field))
      **integer = int64_t(value);
    else
      *std::get<double *>(field) = value;
  }
  if (model.family) {
    Config initial; // this family's defaults: a key may have other defaults in other families
    for (const Key &own : model.family->keys) {
      own.field(initial);
      if (!provenance.given(own.path()))
        model.familyValues[own.name] = initial.model.familyValues.at(own.name);
    }
  }
  for (auto &[name, group] : config.optimizer.groups) {
    group.ownDecay = provenance.given(names::groupSetting(group.name, "weight_decay"));
    if (!provenance.given(names::groupSetting(group.name, "optim_bits")))
      group.optimBits = config.optimizer.type == "adamw8bit" ? 8 : 32;
  }
  if (!provenance.given("model.head_dim") && model.numAttentionHeads > 0)
    model.headDim = model.hiddenSize / model.numAttentionHeads;
  if (!provenance.given("model.intermediate_size") && model.family &&
      model.family->intermediateRatio)
    model.intermediateSize = model.family->intermediateRatio * model.hiddenSize;

  const int64_t perDevice = training.batchSize / config.distributed.ranks();
  training.microBatchAuto = training.microBatchSize == 0;
  if (training.microBatchAuto) {
    training.microBatchSize = 1;
    for (int64_t size = 2; size <= kLargestFirstGuess; ++size)
      if (perDevice % size == 0 && perDevice > 0)
        training.microBatchSize = size;
  }
  training.gradientAccumulationSteps = perDevice / training.microBatchSize;
}

void checkTogether(const CheckedJob &job) {
  for (auto *check : {heads, exported, exports, familyKeys, ofFamily, ropeScaling, positions, batch,
                      shardGroup, expertParallel, expertCapacity, ofRun, device, optimizer, fp8,
                      groups, intermediatePadding, checkPhases})
    check(job);
}

void checkPatterns(const CheckedJob &job, const std::vector<std::string> &parameters) {
  constexpr size_t kMostNearest = 3;
  auto unknown = [&](const std::string &key, const std::string &pattern) {
    job.error(key, "'{}' names no parameter of the model; the nearest are {}", pattern,
              listed(nearestParameters(pattern, parameters, kMostNearest), "and"));
  };
  for (const std::string &pattern : job.config.training.fp8Filter)
    if (std::none_of(parameters.begin(), parameters.end(), [&](const std::string &parameter) {
          return matchesPattern(pattern, parameter);
        }))
      unknown("training.fp8_filter", pattern);
  std::map<std::string, std::string> taken; // the group of each parameter
  for (const auto &[name, group] : job.config.optimizer.groups) {
    const std::string key = names::groupSetting(name, "parameters");
    std::set<std::string> shared; // matching parameters that an earlier group has, too
    for (const std::string &pattern : group.parameters) {
      bool isKnown = false;
      for (const std::string &parameter : parameters) {
        if (!matchesPattern(pattern, parameter))
          continue;
        isKnown = true;
        if (taken.emplace(parameter, name).first->second != name)
          shared.insert(parameter);
      }
      if (!isKnown)
        unknown(key, pattern);
    }
    if (!shared.empty())
      job.error(key,
                "{}{} is of both [[optimizer.group]] {} and [[optimizer.group]] {}; change the "
                "patterns so that each parameter is of one group",
                *shared.begin(),
                shared.size() > 1 ? fmt::format(" (and {} more)", shared.size() - 1) : "",
                taken[*shared.begin()], name);
  }
  // The experts of a layer are merged into shared tensors, so all must be in one optimizer group.
  std::map<std::string, std::string> firstOf; // the first expert parameter of each layer
  for (const std::string &parameter : parameters) {
    const size_t experts = parameter.find(".experts.");
    if (experts == std::string::npos)
      continue;
    const std::string first =
        firstOf.emplace(parameter.substr(0, experts), parameter).first->second;
    const auto groupOf = [&](const std::string &each) {
      const auto found = taken.find(each);
      return found == taken.end() ? std::string() : found->second;
    };
    if (groupOf(first) == groupOf(parameter))
      continue;
    const std::string group = groupOf(first).empty() ? groupOf(parameter) : groupOf(first);
    return job.error(names::groupSetting(group, "parameters"),
                     "{} and {} are of different groups, and the experts of a layer are of one; "
                     "name all of them, as in '{}.experts.*'",
                     first, parameter, parameter.substr(0, experts));
  }
}

} // namespace lmc::config
