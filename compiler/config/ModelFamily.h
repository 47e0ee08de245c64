// What the configuration asks of a model family. The families are in models/families: the
// configuration gets them as a list, so that it knows none of them by name.
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

  // Keys of [model] beyond those of Keys.cpp, made with familyField. They are an error in a job of
  // another family, and go to and from config.json under their names. Families may share a row.
  std::vector<config::Key> keys = {};
  // Keys of Keys.cpp that the class of transformers ignores. An import ignores them too, and a job
  // that is exported in this class may not set them.
  std::vector<std::string> ignored = {};
  // What transformers assumes for a key that config.json leaves out, where [model] has another
  // default.
  config::Json defaults = config::Json::object();
  // Keys of config.json with the one value that lmc can honour.
  config::Json onlyValues = {
      {"hidden_act", "silu"}, {"attention_dropout", 0.0}, {"partial_rotary_factor", 1.0}};

  // Reports keys that do not belong together. Null: nothing to check.
  void (*check)(const config::CheckedJob &job) = nullptr;
  // The export of a model that this family's class of transformers cannot compute, but another's
  // can. Null: there is no such model.
  std::optional<Export> (*exportElsewhere)(const ModelConfig &model) = nullptr;
  // Adds those keys of Keys.cpp to an exported config.json that not every class has. Null: none.
  void (*writeConfig)(const ModelConfig &model, config::Json &json) = nullptr;
  // The graph, as data. Names of parameters in it are those of Hugging Face's checkpoints.
  Decoder (*decoder)(const ModelConfig &model) = nullptr;
};

} // namespace lmc
