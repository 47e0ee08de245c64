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

// How the checkpoints of a model are exported: as the Hugging Face class of `family`.
struct Export {
  const ModelFamily *family;
  std::string reason; // reason for this class, for errors: "a sliding_window"
};

struct ModelFamily {
  const char *name = "";      // value of `model.architecture`
  const char *modelType = ""; // value of "model_type" in config.json
  // The name of the family's Hugging Face class, as in "architectures" of config.json.
  const char *className = "";

  // The keys of [model] that only some families have, this family among them. familyKey()
  // (keys/Traits.h) makes them. If several families have the same key, each has its own default;
  // all other facts about the key are those of the first of these families.
  std::vector<config::Key> keys = {};
  // The names of keys of keys/Model.cpp that are an error in a job of this family. "rope_scaling"
  // stands for all keys of [model.rope_scaling].
  std::vector<std::string> absent = {};
  // The names of [model] keys that the family's Hugging Face class ignores. An import of
  // config.json ignores them, too. A job that is exported as this class must not set them.
  std::vector<std::string> ignored = {};
  // The Hugging Face class's own defaults, where they differ from those of [model].
  config::Json defaults = config::Json::object();
  // Keys with another name in config.json: {other name, name of the key}.
  std::vector<std::pair<const char *, const char *>> otherNames = {};
  // Keys of config.json for which lmc supports only one value, and this value.
  config::Json onlyValues = {{"hidden_act", "silu"},
                             {"attention_dropout", 0.0},
                             {"partial_rotary_factor", 1.0},
                             {"use_sliding_window", false}};
  // Probabilities of dropout in config.json. lmc takes them as 0, with a warning if they are not.
  std::vector<std::string> dropouts = {};
  // The default of model.intermediate_size is this times hidden_size; 0: the key is required.
  int64_t intermediateRatio = 0;
  // True if the MLP can be padded with zeros, because it has a gate and no experts.
  bool mayPadMlp = true;

  // Reports keys that contradict each other. Null: the family has no such checks.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // If this family's own Hugging Face class cannot compute the model, returns the family whose
  // class can; else nothing. Null: the own class can compute every model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Returns the keys of an exported config.json that describe the model. Null: Llama's keys.
  config::Json (*modelKeys)(const ModelConfig &model) = nullptr;
  // Adds to an exported config.json the keys of [model] that only some classes know. Null: none.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // Returns the model's graph as data. Parameters have the names of Hugging Face's checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
