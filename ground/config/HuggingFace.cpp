#include "ground/config/HuggingFace.h"

#include <fmt/format.h>

#include <algorithm>

namespace lmc::config {
namespace {

Value toValue(const Json &json) {
  if (json.is_boolean())
    return json.get<bool>();
  if (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX)
    return OtherValue{"a number beyond 64 bits"};
  if (json.is_number_integer())
    return json.get<int64_t>();
  if (json.is_number())
    return json.get<double>();
  if (json.is_string())
    return json.get<std::string>();
  if (!json.is_array())
    return OtherValue{"an object"};
  if (!std::ranges::all_of(json, [](const Json &each) { return each.is_number_integer(); }))
    return OtherValue{"a list"};
  return json.get<std::vector<int64_t>>();
}

// Returns true if the family's Hugging Face class reads this key of [model] from config.json.
bool isRead(const ModelFamily &family, const Key &key) {
  const std::string_view name = key.name;
  return name != "config" && name != "architecture" && key.isOf(family) &&
         std::find(family.ignored.begin(), family.ignored.end(), name) == family.ignored.end();
}

class JsonReader {
public:
  JsonReader(const std::string &path, const KeyTable &keys, Diagnostics &diagnostics)
      : path(path), keys(keys), diagnostics(diagnostics) {}

  std::vector<Assignment> read(const Json &json) {
    const ModelFamily *family = readFamily(json);
    if (!family)
      return {};
    Json merged = family->defaults;
    for (const auto &[name, value] : json.items())
      merged[name] = value; // copies null values, too: "sliding_window": null means no window
    for (const auto &[other, name] : family->otherNames)
      if (json.contains(other) && !json.contains(name))
        merged[name] = json[other];
    for (const auto &[name, only] : family->onlyValues.items())
      if (merged.contains(name) && !merged[name].is_null() && merged[name] != only)
        error(fmt::format("'{}' is {}; lmc has only {}", name, merged[name].dump(), only.dump()));
    checkLayerTypes(json.value("layer_types", Json()));
    warnOfDropouts(*family, merged);
    for (const Key &key : keys)
      for (const std::string &name : {std::string(key.alias), key.name})
        if (key.section == "model" && !name.empty() && merged.contains(name) &&
            isRead(*family, key))
          add("model", name, merged[name]);
    // If both rope_parameters and rope_scaling are present, transformers uses rope_scaling.
    readRope(*family, merged.value("rope_parameters", Json()));
    readRope(*family, merged.value("rope_scaling", Json()));
    return std::move(assignments);
  }

private:
  void error(const std::string &message) { diagnostics.error({path}, "{}", message); }

  void add(const char *section, const std::string &name, const Json &value) {
    if (!value.is_null())
      assignments.push_back({keys.find(section, name), toValue(value), {path}});
  }

  // Returns the family that config.json names, or null after an error.
  const ModelFamily *readFamily(const Json &json) {
    if (!json.is_object()) {
      error("is not a JSON object");
      return nullptr;
    }
    const Json type = json.value("model_type", Json());
    const Json classes = json.value("architectures", Json());
    Json model = type;
    if (!type.is_string() && classes.is_array() && !classes.empty())
      model = classes[0];
    std::vector<std::string> known;
    for (const ModelFamily *family : keys.families) {
      known.push_back(family->modelType);
      if (model != (type.is_string() ? family->modelType : family->className))
        continue;
      add("model", "architecture", family->name);
      return family;
    }
    error(!model.is_string() ? "has neither 'model_type' nor 'architectures'"
                             : fmt::format("model '{}' is not supported; {} are",
                                           model.get<std::string>(), listed(known, "and")));
    return nullptr;
  }

  void warnOfDropouts(const ModelFamily &family, const Json &json) {
    std::vector<std::string> names;
    for (const std::string &name : family.dropouts)
      if (json.contains(name) && json[name].is_number() && json[name] != 0)
        names.push_back(fmt::format("'{}' = {}", name, json[name].dump()));
    if (!names.empty())
      diagnostics.warning({path},
                          fmt::format("{} {} read as 0, because lmc has no dropout",
                                      listed(names, "and"), names.size() == 1 ? "is" : "are"));
  }

  // Checks `types`, in which transformers 5 lists the kind of attention of each layer.
  void checkLayerTypes(const Json &types) {
    if (!types.is_array())
      return;
    const auto other = std::ranges::find_if(
        types, [](const Json &type) { return type != "full_attention"; });
    if (other != types.end())
      error(fmt::format("'layer_types' has {}; lmc has only \"full_attention\"", other->dump()));
  }

  void readRope(const ModelFamily &family, const Json &rope) {
    if (rope.is_null())
      return;
    if (!rope.is_object())
      return error("'rope_scaling' must be an object or null");
    for (const auto &[name, value] : rope.items()) {
      if (name == "rope_theta")
        add("model", name, value);
      else if (name == "type" && rope.contains("rope_type"))
        continue; // `type` is the older name of rope_type
      else if (keys.find("model.rope_scaling", name))
        add("model.rope_scaling", name, value);
      else if (!family.onlyValues.contains(name) || value != family.onlyValues[name])
        error(fmt::format("'{}' in 'rope_scaling' is not supported", name));
    }
  }

  const std::string &path;
  const KeyTable &keys;
  Diagnostics &diagnostics;
  std::vector<Assignment> assignments;
};

// Returns the keys of config.json for a model of Llama's class. Other families export some of them.
Json llamaKeys(const ModelConfig &model) {
  return {
      {"hidden_size", model.hiddenSize},
      {"intermediate_size", model.intermediateSize},
      {"num_hidden_layers", model.numHiddenLayers},
      {"num_attention_heads", model.numAttentionHeads},
      {"num_key_value_heads", model.numKeyValueHeads},
      {"head_dim", model.headDim},
      {"hidden_act", "silu"},
      {"max_position_embeddings", model.maxPositionEmbeddings},
      {"rms_norm_eps", model.rmsNormEps},
      {"attention_dropout", 0.0},
  };
}

Json ropeParameters(const ModelConfig &model) {
  const RopeScaling &scaling = model.ropeScaling;
  const bool isLlama3 = scaling.type == RopeScalingType::Llama3;
  const bool isYarn = scaling.type == RopeScalingType::Yarn;
  // The names are in the order of RopeScalingType.
  constexpr const char *kNames[] = {"default", "linear", "llama3", "dynamic", "yarn"};
  Json rope = {{"rope_type", kNames[size_t(scaling.type)]}};
  if (scaling.type != RopeScalingType::None)
    rope["factor"] = scaling.factor;
  if (isLlama3)
    rope.update(
        {{"low_freq_factor", scaling.lowFreqFactor}, {"high_freq_factor", scaling.highFreqFactor}});
  if (isYarn)
    rope.update({{"beta_fast", scaling.betaFast}, {"beta_slow", scaling.betaSlow}});
  if (isLlama3 || isYarn) // not for `dynamic`, which scales only beyond max_position_embeddings
    rope["original_max_position_embeddings"] = scaling.originalMaxPositionEmbeddings;
  if (isYarn && scaling.attentionFactor != 0)
    rope["attention_factor"] = scaling.attentionFactor;
  return rope;
}

} // namespace

Export exportOf(const ModelConfig &model) {
  if (model.family->exportElsewhere)
    if (std::optional<Export> elsewhere = model.family->exportElsewhere(model))
      return *elsewhere;
  return {model.family, fmt::format("architecture \"{}\"", model.family->name)};
}

std::vector<Assignment> importHuggingFaceConfig(const std::string &path, const KeyTable &keys,
                                                Diagnostics &diagnostics) {
  const Result<std::string> text = readFile(path);
  if (!text) {
    diagnostics.error({path}, "{}", text.error().message);
    return {};
  }
  Json json;
  try { // the library reports errors only by exceptions
    json = Json::parse(*text);
  } catch (const Json::parse_error &wrong) {
    const size_t byte = std::min(wrong.byte ? wrong.byte - 1 : 0, text->size());
    const size_t lineStart = byte ? text->rfind('\n', byte - 1) + 1 : 0; // no '\n': npos + 1 is 0
    const auto line = std::count(text->begin(), text->begin() + byte, '\n') + 1;
    diagnostics.error(
        {path, static_cast<unsigned>(line), static_cast<unsigned>(byte - lineStart + 1)},
        "is not valid JSON here");
    return {};
  } catch (const Json::out_of_range &) {
    diagnostics.error({path}, "has a number that is too large for any key");
    return {};
  }
  return JsonReader(path, keys, diagnostics).read(json);
}

} // namespace lmc::config

namespace lmc {

std::string notExportable(const ModelConfig &model) {
  if (!model.embeddingNorm)
    return "";
  return fmt::format("Hugging Face's {} has no norm behind the embedding (model.embedding_norm)",
                     config::exportOf(model).family->className);
}

std::string huggingFaceConfig(const Config &config) {
  const ModelConfig &model = config.model;
  const ModelFamily &family = *config::exportOf(model).family;
  config::Json json = {
      {"architectures", config::Json::array({family.className})},
      {"model_type", family.modelType},
      {"vocab_size", model.vocabSize},
  };
  json.update(family.modelKeys ? family.modelKeys(model) : config::llamaKeys(model));
  json.update({
      {"initializer_range", model.initializerRange},
      {"tie_word_embeddings", model.tieWordEmbeddings},
      {"use_cache", true},
      // These ids depend on the tokenizer, so lmc does not know them.
      {"bos_token_id", nullptr},
      {"eos_token_id", nullptr},
      {"pad_token_id", nullptr},
  });
  if (family.writeConfig)
    family.writeConfig(model, json);
  for (const config::Key &key : family.keys)
    std::visit([&](const auto &value) { json[key.name] = value; }, model.familyValues.at(key.name));
  // transformers 4 reads rope_theta and rope_scaling, transformers 5 reads rope_parameters.
  if (std::ranges::find(family.absent, "rope_theta") == family.absent.end()) {
    config::Json rope = config::ropeParameters(model);
    json["rope_theta"] = model.ropeTheta;
    json["rope_scaling"] = model.ropeScaling.type == RopeScalingType::None ? nullptr : rope;
    rope["rope_theta"] = model.ropeTheta;
    json["rope_parameters"] = rope;
  }
  // transformers 4 reads torch_dtype, transformers 5 reads dtype. Exports have f32 master weights.
  json["torch_dtype"] = "float32";
  json["dtype"] = "float32";
  return json.dump(2) + "\n";
}

} // namespace lmc
