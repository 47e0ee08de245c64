// The parts of a model family (Llama, Mistral) that the configuration needs. The families are in
// models/families. The configuration gets them as a list, so that it names none of them.
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
  // Name of the family's Hugging Face class, in "architectures" of config.json.
  const char *className = "";

  // Keys of [model] that this family has in addition to those of all families (keys/Model.cpp),
  // made by familyKey() (keys/Traits.h). In a job of a family without the key, the key is an error.
  // config.json uses the same key names. Several families may have the same key, each with a
  // default of its own; the rest of the key is that of the first of these families.
  std::vector<config::Key> keys = {};
  // Names of [model] keys of all families that the family does not have: in a job, such a key is an
  // error. "rope_scaling" stands for all keys of [model.rope_scaling].
  std::vector<std::string> absent = {};
  // Names of [model] keys of all families that the family's Hugging Face class (Python, in the
  // library transformers) ignores. An import of config.json ignores them too. A job that is
  // exported as this class may not set them.
  std::vector<std::string> ignored = {};
  // Values that the Hugging Face class uses for keys that config.json leaves out, where they differ
  // from the defaults of [model].
  config::Json defaults = config::Json::object();
  // Names in config.json, in the place of those of keys: {other name, name of the key}. The class
  // reads both, and writes this one.
  std::vector<std::pair<const char *, const char *>> otherNames = {};
  // Keys of config.json that lmc supports with one value only, and this value.
  config::Json onlyValues = {{"hidden_act", "silu"},
                             {"attention_dropout", 0.0},
                             {"partial_rotary_factor", 1.0},
                             {"use_sliding_window", false}};
  // Keys of config.json that are probabilities of dropout. lmc has none: they are read as 0, with a
  // warning if they are more.
  std::vector<std::string> dropouts = {};
  // model.intermediate_size is this many times hidden_size if it is not given; 0: it is required.
  int64_t intermediateRatio = 0;
  // The MLP may be padded (target.make_intermediate_size_divisible_by): it has a gate and no
  // experts.
  bool mayPadMlp = true;

  // Reports keys that contradict each other. Null if the family has no such checks.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // Returns the family to export a model as, if this family's own Hugging Face class cannot compute
  // the model; nothing if it can. Null if it can compute every model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Returns the keys of an exported config.json that describe the model, but for those that all
  // Hugging Face classes share. Null: Llama's keys.
  config::Json (*modelKeys)(const ModelConfig &model) = nullptr;
  // Adds to an exported config.json those keys of [model] that only some Hugging Face classes
  // have. Null if the family's class has no such keys.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // Returns the model's graph as data. Parameters have the names of Hugging Face's checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
