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

// Checkpoints of a model are exported for the Hugging Face class of `family`.
struct Export {
  const ModelFamily *family;
  std::string reason; // reason for this class, for errors: "a sliding_window"
};

struct ModelFamily {
  const char *name = "";      // value of `model.architecture`
  const char *modelType = ""; // value of "model_type" in config.json
  // The name of the family's Hugging Face class, as in "architectures" of config.json.
  const char *className = "";

  // The keys of [model] that this family has, but not every family. familyKey() (keys/Traits.h)
  // makes them. Families with the same key may have different defaults for it. All other facts
  // about the key come from the first of these families.
  std::vector<config::Key> keys = {};
  // The names of keys in keys/Model.cpp that a job of this family must not set. "rope_scaling"
  // stands for all keys of [model.rope_scaling].
  std::vector<std::string> absent = {};
  // The names of [model] keys that the family's Hugging Face class ignores. An import of
  // config.json ignores them, too. A job that is exported for this class must not set them.
  std::vector<std::string> ignored = {};
  // The Hugging Face class's own defaults, where they differ from those of [model].
  config::Json defaults = config::Json::object();
  // Keys with another name in config.json: {other name, name of the key}.
  std::vector<std::pair<const char *, const char *>> otherNames = {};
  // Keys of config.json for which lmc supports only one value, each with this value.
  config::Json onlyValues = {{"hidden_act", "silu"},
                             {"attention_dropout", 0.0},
                             {"partial_rotary_factor", 1.0},
                             {"use_sliding_window", false}};
  // Keys of config.json with dropout probabilities. lmc reads them as 0, and warns if one is not.
  std::vector<std::string> dropouts = {};
  // The default of intermediate_size, as a multiple of hidden_size; 0: the key is required.
  int64_t intermediateRatio = 0;
  // True if the MLP can be padded with zeros, because it has a gate and no experts.
  bool mayPadMlp = true;

  // Reports keys that contradict each other. Null: the family has no such checks.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // If this family's Hugging Face class cannot compute the model, returns a family whose class can;
  // else nothing. The pointer is null if this family's class can compute every model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Returns the keys of an exported config.json that describe the model. Null: Llama's keys.
  config::Json (*modelKeys)(const ModelConfig &model) = nullptr;
  // Adds to an exported config.json the keys of [model] that only some classes know. Null: none.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // Returns the model's graph as data. Parameters have the names of Hugging Face's checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
