// The facts about a model family (Llama, Mistral) that the configuration needs (models/families).
#pragma once

#include "ground/config/Keys.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lmc {

struct Decoder; // models/families/Decoder.h

namespace config {
using Json = nlohmann::ordered_json;
struct CheckedJob; // ground/config/Checks.h
} // namespace config

// Checkpoints of a model are exported for one Hugging Face class: the class of `family`.
struct Export {
  const ModelFamily *family;
  std::string reason; // reason for this class, for errors: "a sliding_window"
};

struct ModelFamily {
  const char *name = "";      // value of `model.architecture`
  const char *modelType = ""; // value of "model_type" in config.json
  // The name of the family's Hugging Face class, as in "architectures" of config.json.
  const char *className = "";

  // The keys of [model] that this family has and some other family lacks. familyKey()
  // (keys/Traits.h) makes them. Families may give such a key different defaults. All other facts
  // about the key come from the first family that has it.
  std::vector<config::Key> keys = {};
  // The names of keys in keys/Model.cpp that a job of this family must not set. "rope_scaling"
  // stands for all keys of [model.rope_scaling].
  std::vector<std::string> absent = {};
  // The names of [model] keys that the family's Hugging Face class ignores. An import of
  // config.json ignores them, too. A job that is exported for this class must not set them.
  std::vector<std::string> ignored = {};
  // The Hugging Face class's own defaults, where they differ from those of [model].
  config::Json defaults = config::Json::object();
  // Keys with another name in config.json: {other name, name of the key}. The Hugging Face class
  // reads both names, and writes the other name.
  std::vector<std::pair<const char *, const char *>> otherNames = {};
  // Keys of config.json for which lmc supports only one value, each with this value.
  config::Json onlyValues = {{"hidden_act", "silu"},
                             {"attention_dropout", 0.0},
                             {"partial_rotary_factor", 1.0},
                             {"use_sliding_window", false}};
  // Keys of config.json with dropout probabilities. lmc reads them as 0, and warns of other values.
  std::vector<std::string> dropouts = {};
  // The default of intermediate_size, as a multiple of hidden_size. 0: a job must set the key.
  int64_t intermediateRatio = 0;
  // True if the MLP can be padded with zeros, because it has a gate and no experts.
  bool mayPadMlp = true;

  // Reports keys that contradict each other. If null, the family has no such checks.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // If this family's Hugging Face class cannot compute the model, returns a family whose class can;
  // otherwise nullopt. A null pointer means that this family's class computes every model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Returns the config.json keys that describe an exported model. If null, Llama's keys are used.
  config::Json (*modelKeys)(const ModelConfig &model) = nullptr;
  // Adds to an exported config.json the keys of [model] that only some classes know. Null: none.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // Describes the model as data. Parameters have their names in Hugging Face checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
