// The part of a model family that the configuration needs. The families are in models/families.
// They are passed to the configuration as a list, so that it knows none of them by name.
#pragma once

#include "compiler/config/Keys.h"

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

namespace lmc {

struct Decoder; // models/families/Decoder.h

namespace config {
using Json = nlohmann::ordered_json;
struct CheckedJob; // compiler/config/Checks.h
} // namespace config

// The family in whose class of transformers checkpoints of a model are exported.
struct Export {
  const ModelFamily *family;
  std::string reason; // "a sliding_window": why it is this one
};

struct ModelFamily {
  const char *name = "";      // in `model.architecture`
  const char *modelType = ""; // in config.json: "model_type"
  const char *className = ""; // in config.json: the class of transformers in "architectures"

  // Keys of [model] in addition to those of Keys.cpp, made with familyField. In a job of another
  // family such a key is an error. config.json has these keys under the same names. Several
  // families may share a row.
  std::vector<config::Key> keys = {};
  // Keys of Keys.cpp that the class of transformers ignores. An import ignores them too, and a job
  // that is exported in this class may not set them.
  std::vector<std::string> ignored = {};
  // Defaults of transformers for keys that config.json leaves out, if they differ from those of
  // [model].
  config::Json defaults = config::Json::object();
  // Keys of config.json, each with the only value that lmc supports.
  config::Json onlyValues = {
      {"hidden_act", "silu"}, {"attention_dropout", 0.0}, {"partial_rotary_factor", 1.0}};

  // Reports keys that contradict each other. Null if there is nothing to check.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // The export of a model that this family's class of transformers cannot compute, but another's
  // can. Null: there is no such model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Adds keys of Keys.cpp to an exported config.json that not every class has. Null if there are
  // none.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // The graph as data. Names of parameters are those of Hugging Face's checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
