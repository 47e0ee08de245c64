#include "runtime/checkpoint/HuggingFace.h"

#include "ground/plan/FloatConvert.h"
#include "ground/support/File.h"
#include "ground/support/Json.h"
#include "ground/support/Number.h"
#include "runtime/checkpoint/SafeTensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <ranges>
#include <set>
#include <sys/stat.h>
#include <utility>

namespace lmc {

static constexpr const char *kConfigFile = "config.json";
static constexpr const char *kGenerationFile = "generation_config.json";
static constexpr const char *kModelFile = "model.safetensors";
static constexpr const char *kIndexFile = "model.safetensors.index.json";
static constexpr const char *kHead = "lm_head.weight";
static constexpr const char *kEmbeddings[] = {"model.embed_tokens.weight",
                                              "transformer.wte.weight"};
static constexpr const char *kTieKey = "tie_word_embeddings";
static constexpr uint64_t kMaximumJsonBytes = 64 << 20;
static constexpr uint64_t kMaximumCopiedBytes = 1 << 30; // tokenizer files have some 30 MB

static bool isFolder(const std::string &path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

// Returns false if one of the two dtypes is not a float type, even if `count` is 0. Weights in 8
// bits have scales in other tensors, so their numbers alone are not the weights.
static bool convert(const SafeTensorsFile::Entry &from, uint64_t count, plan::DType to,
                    void *target) {
  return from.dtype && byteWidth(*from.dtype) > 1 &&
         convertFloats(*from.dtype, from.data, to, target, count);
}

//===--- Export -----------------------------------------------------------===//

namespace {

struct ExportTensor {
  size_t source;     // index among the given tensors
  TensorView target; // the tensor as it is written
};

// A file of weights in an export. The tensors are in the order of their data in the file.
struct Shard {
  std::string name;
  std::vector<ExportTensor> tensors;

  std::vector<TensorView> views() const {
    std::vector<TensorView> result;
    for (const ExportTensor &tensor : tensors)
      result.push_back(tensor.target);
    return result;
  }
};

// The contents of an export.
struct Export {
  std::vector<Shard> shards;
  std::vector<std::pair<std::string, std::string>> texts; // names and contents of the JSON files
};

} // namespace

// Hugging Face's from_pretrained rejects a file whose metadata does not name a framework ("pt").
static const std::map<std::string, std::string> kMetadata = {{"format", "pt"}};

// Returns the dtype's name in config.json; nullptr if it is not a float type.
static const char *torchName(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::F32:
    return "float32";
  case plan::DType::BF16:
    return "bfloat16";
  case plan::DType::F64:
    return "float64";
  default:
    return nullptr;
  }
}

static std::string fileName(const std::string &path) {
  return std::filesystem::path(path).filename().string();
}

// Returns true for model.safetensors and for model-00001-of-00002.safetensors with any digits.
static bool isWeightFile(std::string name) {
  if (name == kModelFile)
    return true;
  for (char &c : name)
    if (c >= '0' && c <= '9')
      c = '0';
  return name == "model-00000-of-00000.safetensors";
}

// Returns an error if `directory` exists and has a file that no export writes.
static Result<void> checkReplaceable(const std::string &directory, const ExportOptions &options) {
  if (!exists(directory))
    return {};
  LMC_LET(names, listFolder(directory));
  std::set<std::string> own = {kConfigFile, kGenerationFile, kIndexFile};
  for (const std::string &file : options.files)
    own.insert(fileName(file));
  for (const std::string &name : *names)
    if (!own.contains(name) && !isWeightFile(name))
      return userError(
          "{}: exists and holds '{}', which an export would remove: name another folder", directory,
          name);
  return {};
}

// Divides tensors as split_state_dict_into_shards_factory in huggingface_hub does.
static std::vector<Shard> divide(std::vector<ExportTensor> tensors, uint64_t maximumBytes) {
  std::vector<Shard> shards;
  Shard current;
  uint64_t bytes = 0;
  for (ExportTensor &tensor : tensors) {
    const uint64_t size = tensor.target.bytes;
    if (size > maximumBytes) {
      shards.push_back({"", {std::move(tensor)}});
      continue;
    }
    if (bytes + size > maximumBytes) {
      shards.push_back(std::exchange(current, {}));
      bytes = 0;
    }
    bytes += size;
    current.tensors.push_back(std::move(tensor));
  }
  if (!current.tensors.empty() || shards.empty())
    shards.push_back(std::move(current));
  for (size_t i = 0; i < shards.size(); ++i)
    shards[i].name = shards.size() == 1
                         ? kModelFile
                         : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

static std::string indexJson(const std::vector<Shard> &shards) {
  nlohmann::json map = nlohmann::json::object();
  uint64_t bytes = 0, parameters = 0;
  for (const Shard &shard : shards)
    for (const ExportTensor &tensor : shard.tensors) {
      map[tensor.target.name] = shard.name;
      bytes += tensor.target.bytes;
      parameters += tensor.target.bytes / byteWidth(tensor.target.dtype);
    }
  return nlohmann::json{{"metadata", {{"total_parameters", parameters}, {"total_size", bytes}}},
                        {"weight_map", std::move(map)}}
             .dump(2) +
         "\n";
}

// Pads the embedding and the head with zeros to N rows, a multiple of `multiple`. Sets vocab_size
// to N. Error: config.json has no vocab_size, or no tensor has vocab_size rows.
static Result<void> padVocabulary(const std::string &to, uint64_t multiple,
                                  nlohmann::ordered_json &config,
                                  std::vector<ExportTensor> &tensors) {
  auto size = config.find("vocab_size");
  if (size == config.end() || !size->is_number_unsigned())
    return userError("cannot export to {}: config.json has no vocab_size to pad", to);
  const uint64_t tokens = size->get<uint64_t>();
  const uint64_t rows = (tokens + multiple - 1) / multiple * multiple;
  bool found = false;
  for (ExportTensor &tensor : tensors) {
    TensorView &view = tensor.target;
    const bool hasTokens =
        view.name == kHead || std::ranges::find(kEmbeddings, view.name) != std::end(kEmbeddings);
    if (!hasTokens || view.shape.front() != tokens)
      continue;
    view.bytes = view.bytes / tokens * rows;
    view.shape.front() = rows;
    found = true;
  }
  if (!found)
    return userError(
        "cannot export to {}: the vocabulary cannot be padded, because none of {}, {} has {} rows",
        to, fmt::join(kEmbeddings, ", "), kHead, tokens);
  *size = rows;
  return {};
}

// Decides what an export into the folder `to` writes.
static Result<Export> planExport(const std::string &to, const std::string &configJson,
                                 const std::vector<TensorView> &tensors,
                                 const ExportOptions &options) {
  if (Result<nlohmann::json> checked = parseJsonObject(configJson, to + "/" + kConfigFile);
      !checked)
    return checked.error();
  nlohmann::ordered_json config = nlohmann::ordered_json::parse(configJson); // keeps key order
  auto tie = config.find(kTieKey);
  const bool tied = tie != config.end() && tie->is_boolean() && tie->get<bool>();

  std::vector<ExportTensor> written;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tied && tensors[i].name == kHead)
      continue;
    TensorView view = tensors[i];
    if (options.dtype) {
      if (!torchName(view.dtype) || !torchName(*options.dtype))
        return userError("cannot export to {}: '{}' is {}, which does not convert to {}", to,
                         view.name, safeTensorsName(view.dtype), safeTensorsName(*options.dtype));
      view.bytes = view.bytes / byteWidth(view.dtype) * byteWidth(*options.dtype);
      view.dtype = *options.dtype;
    }
    written.push_back({i, std::move(view)});
  }
  if (options.vocabMultiple > 1)
    LMC_TRY(padVocabulary(to, options.vocabMultiple, config, written));
  // transformers 4 reads torch_dtype, and transformers 5 reads dtype.
  if (const char *name = written.empty() ? nullptr : torchName(written.front().target.dtype))
    for (const char *key : {"torch_dtype", "dtype"})
      config[key] = name;
  nlohmann::ordered_json generation = {{"_from_model_config", true}};
  auto setId = [&](const char *key, std::optional<uint32_t> id) {
    if (id)
      config[key] = *id;
    if (auto value = config.find(key); value != config.end())
      generation[key] = *value;
  };
  setId("bos_token_id", options.bosTokenId);
  setId("eos_token_id", options.eosTokenId);

  Export result;
  result.shards = divide(std::move(written), options.maximumShardBytes);
  result.texts = {{kConfigFile, config.dump(2) + "\n"},
                  {kGenerationFile, generation.dump(2) + "\n"}};
  if (result.shards.size() > 1)
    result.texts.emplace_back(kIndexFile, indexJson(result.shards));
  return result;
}

static Result<uint64_t> bytesOf(const std::string &to, const Export &contents,
                                const ExportOptions &options) {
  uint64_t total = 0;
  for (const Shard &shard : contents.shards) {
    LMC_LET(bytes, safeTensorsBytes(to + "/" + shard.name, shard.views(), kMetadata));
    total += *bytes;
  }
  for (const auto &[name, text] : contents.texts)
    total += text.size();
  for (const std::string &path : options.files) {
    LMC_LET(file, File::openForReading(path));
    LMC_LET(bytes, file->size());
    total += *bytes;
  }
  return total;
}

static Result<void> writeShard(const std::string &partial, const Shard &shard,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch) {
  // A buffer for the largest tensor whose dtype changes. It holds the tensor before the conversion.
  std::vector<TensorView> changing;
  for (const ExportTensor &tensor : shard.tensors)
    if (tensors[tensor.source].dtype != tensor.target.dtype)
      changing.push_back(tensors[tensor.source]);
  LMC_LET(unconverted, bufferForLargest(changing, partial));
  FetchTensor fetchConverted = [&](size_t index, void *data) -> Result<void> {
    const ExportTensor &tensor = shard.tensors[index];
    const TensorView &from = tensors[tensor.source];
    const uint64_t elements = from.bytes / byteWidth(from.dtype);
    if (from.dtype == tensor.target.dtype) {
      LMC_TRY(fetch(tensor.source, data));
    } else {
      LMC_TRY(fetch(tensor.source, unconverted->get()));
      convertFloats(from.dtype, unconverted->get(), tensor.target.dtype, data, elements);
    }
    const uint64_t end = elements * byteWidth(tensor.target.dtype); // zeros follow
    std::memset(static_cast<char *>(data) + end, 0, tensor.target.bytes - end);
    return {};
  };
  return writeSafeTensors(partial + "/" + shard.name, shard.views(), fetchConverted, kMetadata);
}

static Result<void> writeExport(const std::string &partial, const Export &contents,
                                const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                                const ExportOptions &options) {
  for (const Shard &shard : contents.shards)
    LMC_TRY(writeShard(partial, shard, tensors, fetch));
  for (const auto &[name, text] : contents.texts)
    LMC_TRY(writeTextFile(partial + "/" + name, text));
  for (const std::string &path : options.files) {
    LMC_LET(text, readTextFile(path, kMaximumCopiedBytes));
    LMC_TRY(writeTextFile(partial + "/" + fileName(path), *text));
  }
  return syncFolder(partial);
}

Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                               const ExportOptions &options) {
  std::filesystem::path target = std::filesystem::path(directory).lexically_normal();
  if (!target.has_filename()) // `directory` ends in a slash, such as "a/b/"
    target = target.parent_path();
  std::string to = target.string(), name = target.filename().string();
  std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
  if (name.empty() || name == "." || name == "..")
    return userError("cannot export to '{}': name a folder of its own", directory);
  LMC_LET(contents, planExport(to, configJson, tensors, options));
  LMC_LET(needed, bytesOf(to, *contents, options));

  LMC_TRY(checkReplaceable(to, options));
  LMC_TRY(makeFolders(parent));
  std::string partial = parent + "/." + name + ".partial";
  LMC_TRY(removeTree(partial));
  LMC_LET(free, freeBytes(parent));
  if (*needed > *free)
    return machineError("cannot export to {}: the disk is too full: {} bytes needed, {} free", to,
                        *needed, *free);
  if (::mkdir(partial.c_str(), 0777) != 0)
    return systemError("create", partial, errno);
  Result<void> result = writeExport(partial, *contents, tensors, fetch, options);
  if (result)
    result = publishFolder(partial, to, parent + "/." + name + ".replaced");
  // If removing the folder fails too, the result is still the export's error.
  if (!result)
    (void)static_cast<bool>(removeTree(partial));
  return result;
}

Result<std::vector<std::string>> tokenizerFiles(const std::string &path) {
  // The names of the files that tokenizers of transformers save and load.
  static const std::set<std::string> names = {"tokenizer.json",
                                              "tokenizer_config.json",
                                              "special_tokens_map.json",
                                              "added_tokens.json",
                                              "vocab.json",
                                              "merges.txt",
                                              "tokenizer.model",
                                              "chat_template.jinja"};
  std::vector<std::string> files;
  for (const std::string &name : names)
    if (isFolder(path) ? exists(path + "/" + name) : exists(path) && fileName(path) == name)
      files.push_back(isFolder(path) ? path + "/" + name : path);
  if (files.empty())
    return userError("{}: {}; a tokenizer's files are {}", path,
                     exists(path) ? "no tokenizer there" : "no such file or folder",
                     fmt::join(names, ", "));
  return files;
}

//===--- Import -----------------------------------------------------------===//

namespace {
// The open files of a model, and its tensors by name.
struct Model {
  std::vector<std::unique_ptr<SafeTensorsFile>> files;
  struct Tensor {
    const SafeTensorsFile *file;
    const SafeTensorsFile::Entry *entry;
  };
  std::map<std::string, Tensor> tensors;
  // The slices of fused tensors: one entry for each linear layer of each expert.
  std::deque<SafeTensorsFile::Entry> experts;
};

// The names that a checkpoint gives to a layer's MLP with experts and to an expert's linear layers.
struct ExpertNames {
  std::string_view module, gate, up, down;
};

constexpr ExpertNames kExpertNames[] = {{".mlp.", "gate_proj", "up_proj", "down_proj"},
                                        {".block_sparse_moe.", "w1", "w3", "w2"}}; // Mixtral
constexpr std::string_view kExperts = ".experts.";
constexpr std::string_view kFusedGateUp = ".mlp.experts.gate_up_proj";
constexpr std::string_view kFusedDown = ".mlp.experts.down_proj";
} // namespace

static Result<void> addFile(Model &model, const std::string &path) {
  LMC_LET(file, SafeTensorsFile::open(path));
  for (const SafeTensorsFile::Entry &entry : (*file)->entries())
    if (auto [place, isNew] = model.tensors.try_emplace(entry.name, file->get(), &entry); !isNew)
      return userError("{}: '{}' is in {} too", path, entry.name, place->second.file->path());
  model.files.push_back(std::move(*file));
  return {};
}

static Result<void> addShards(Model &model, const std::string &folder) {
  std::string indexPath = folder + "/" + kIndexFile;
  LMC_LET(index, readJsonObject(indexPath, kMaximumJsonBytes));
  auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object())
    return userError("{}: no object 'weight_map'", indexPath);
  std::set<std::string> files;
  for (const auto &[name, file] : map->get_ref<const nlohmann::json::object_t &>()) {
    const std::string *fileName = file.get_ptr<const std::string *>();
    // A shard must lie beside its index: names with a folder are rejected.
    if (!fileName || fileName->empty() ||
        fileName->find_first_of(std::string("/\0", 2)) != std::string::npos)
      return userError("{}: the file of '{}' is not a name of a file beside the index", indexPath,
                       name);
    files.insert(*fileName);
  }
  for (const std::string &file : files)
    LMC_TRY(addFile(model, folder + "/" + file));
  for (const auto &[name, file] : map->get_ref<const nlohmann::json::object_t &>()) {
    std::string path = folder + "/" + file.get<std::string>();
    auto found = model.tensors.find(name);
    if (found == model.tensors.end() || found->second.file->path() != path)
      return userError("{}: no tensor '{}', which {} expects there", path, name, kIndexFile);
  }
  return {};
}

static Result<Model> openModel(const std::string &path) {
  Model model;
  if (!isFolder(path)) {
    LMC_TRY(addFile(model, path));
    return model;
  }
  // A single file takes precedence over shards, as in from_pretrained.
  if (exists(path + "/" + kModelFile))
    LMC_TRY(addFile(model, path + "/" + kModelFile));
  else if (exists(path + "/" + kIndexFile))
    LMC_TRY(addShards(model, path));
  else
    return userError(
        "{}: neither {} nor {} there{}", path, kModelFile, kIndexFile,
        exists(path + "/pytorch_model.bin") ? ": save it again with safe_serialization=True" : "");
  return model;
}

// Returns true if a config.json beside the weights has tie_word_embeddings = false.
static Result<bool> saysUntied(const std::string &path) {
  std::string configPath = path + "/" + kConfigFile;
  if (!isFolder(path) || !exists(configPath))
    return false;
  LMC_LET(config, readJsonObject(configPath, kMaximumJsonBytes));
  auto tie = config->find(kTieKey);
  return tie != config->end() && tie->is_boolean() && !tie->get<bool>();
}

// Returns the first three names and the number of the others: "'a', 'b', 'c' and 7 more".
static std::string listNames(const std::vector<std::string> &names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  if (names.size() > kShown)
    text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

// Returns true for tensors in a file that are no parameters: RoPE's frequencies and GPT-2's masks.
static bool isBuffer(std::string_view name) {
  return name.ends_with("rotary_emb.inv_freq") || name.ends_with(".attn.bias") ||
         name.ends_with(".attn.masked_bias");
}

// If no name in the file has the prefix of `tensors` ("model."), adds it to all except kHead.
static void addPrefix(Model &model, const std::vector<TensorView> &tensors) {
  if (tensors.empty())
    return;
  const std::string &first = tensors.front().name;
  const std::string prefix = first.substr(0, first.find('.') + 1);
  const auto hasPrefix = [&](const std::string &name) { return name.starts_with(prefix); };
  const auto lacksOnlyPrefix = [&](const TensorView &tensor) {
    return hasPrefix(tensor.name) && model.tensors.contains(tensor.name.substr(prefix.size()));
  };
  if (prefix.empty() || std::ranges::any_of(model.tensors | std::views::keys, hasPrefix) ||
      std::ranges::none_of(tensors, lacksOnlyPrefix))
    return;
  std::map<std::string, Model::Tensor> renamed;
  for (const auto &[known, tensor] : model.tensors)
    renamed.emplace(known == kHead ? known : prefix + known, tensor);
  model.tensors = std::move(renamed);
}

// Returns the number of experts of each layer. A key is, e.g., "model.layers.3.mlp.experts.".
template <typename Names> static std::map<std::string, uint64_t> countExperts(const Names &names) {
  std::map<std::string, uint64_t> counts;
  for (const std::string &name : names) {
    const size_t at = name.find(kExperts);
    if (at == std::string::npos)
      continue;
    const size_t begin = at + kExperts.size(), end = name.find('.', begin);
    if (end == std::string::npos)
      continue;
    if (const auto number = parseWhole<uint64_t>(name.substr(begin, end - begin))) {
      uint64_t &count = counts[name.substr(0, begin)];
      count = std::max(count, *number + 1);
    }
  }
  return counts;
}

static Error otherExperts(const std::string &path, std::string_view experts, uint64_t there,
                          uint64_t here) {
  return userError("{}: '{}' has {} experts there and {} in the model", path,
                   experts.substr(0, experts.size() - 1), there, here);
}

// Replaces the fused experts of each layer (see HuggingFace.h) by one tensor per expert and linear
// layer, with the names in `tensors`. Layers without experts in `tensors` stay fused.
static Result<void> divideExperts(Model &model, const std::vector<TensorView> &tensors) {
  const std::map<std::string, uint64_t> counts =
      countExperts(tensors | std::views::transform(&TensorView::name));
  std::vector<std::string> fused;
  for (const std::string &name : model.tensors | std::views::keys)
    if (name.ends_with(kFusedGateUp) || name.ends_with(kFusedDown))
      fused.push_back(name);
  for (const std::string &name : fused) {
    const bool isDown = name.ends_with(kFusedDown);
    const std::string layer =
        name.substr(0, name.size() - (isDown ? kFusedDown : kFusedGateUp).size());
    const auto experts = [&](const ExpertNames &names) {
      return fmt::format("{}{}experts.", layer, names.module);
    };
    const auto names = std::ranges::find_if(
        kExpertNames, [&](const ExpertNames &each) { return counts.contains(experts(each)); });
    if (names == std::end(kExpertNames))
      continue;
    const uint64_t count = counts.at(experts(*names)), halves = isDown ? 1 : 2;
    const auto [file, whole] = model.tensors.at(name);
    if (whole->shape.size() != 3 || whole->shape[1] % halves != 0)
      return userError("{}: '{}' is {} there, which is not that of fused experts", file->path(),
                       name, shapeText(whole->shape));
    if (whole->shape[0] != count)
      return otherExperts(file->path(), experts(*names), whole->shape[0], count);
    SafeTensorsFile::Entry part = *whole;
    part.shape = {whole->shape[1] / halves, whole->shape[2]};
    part.bytes = whole->bytes / (count * halves);
    for (uint64_t i = 0; i < count * halves; ++i) {
      const std::string_view linear = isDown ? names->down : i % 2 ? names->up : names->gate;
      part.name = fmt::format("{}{}.{}.weight", experts(*names), i / halves, linear);
      part.data = static_cast<const char *>(whole->data) + i * part.bytes;
      part.offset = whole->offset + i * part.bytes;
      model.experts.push_back(part);
      if (!model.tensors.try_emplace(part.name, file, &model.experts.back()).second)
        return userError("{}: has both '{}' and '{}'", file->path(), name, part.name);
    }
    model.tensors.erase(name);
    const std::string router = layer + ".mlp.gate.weight";
    if (auto found = model.tensors.extract(router)) {
      found.key() = fmt::format("{}{}gate.weight", layer, names->module);
      model.tensors.insert(std::move(found));
    }
  }
  return {};
}

Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store) {
  // Checks that each view's `bytes` fits its shape. `buffer` gets the size of the largest `bytes`.
  if (Result<uint64_t> bytes = safeTensorsBytes(path, tensors, {}); !bytes)
    return bytes.error();
  LMC_LET(model, openModel(path));

  addPrefix(*model, tensors);
  LMC_TRY(divideExperts(*model, tensors));
  const std::map<std::string, uint64_t> there = countExperts(model->tensors | std::views::keys);
  for (const auto &[experts, count] :
       countExperts(tensors | std::views::transform(&TensorView::name)))
    if (auto found = there.find(experts); found != there.end() && found->second != count)
      return otherExperts(path, experts, found->second, count);
  std::set<std::string_view> wanted;
  std::vector<std::string> missing, extra;
  for (const TensorView &tensor : tensors) {
    wanted.insert(tensor.name);
    if (!model->tensors.contains(tensor.name))
      missing.push_back(tensor.name);
  }
  bool extraHead = false;
  for (const auto &[name, tensor] : model->tensors) {
    if (wanted.contains(name) || isBuffer(name))
      continue;
    if (name == kHead)
      extraHead = true;
    else
      extra.push_back(name);
  }
  if (missing == std::vector<std::string>{kHead} && extra.empty())
    return userError("{}: no '{}': its head is tied to the embedding, or was not saved; if it is "
                     "tied, set model.tie_word_embeddings = true",
                     path, kHead);
  if (!missing.empty())
    return userError("{}: lacks {}, which the model has", path, listNames(missing));
  if (!extra.empty())
    return userError("{}: has {}, which the model lacks", path, listNames(extra));
  if (extraHead) {
    LMC_LET(untied, saysUntied(path));
    if (*untied)
      return userError("{}: its head is not tied to the embedding, the model's is; set "
                       "model.tie_word_embeddings = false",
                       path);
  }

  for (const TensorView &tensor : tensors) {
    auto [file, entry] = model->tensors.at(tensor.name);
    if (entry->shape != tensor.shape)
      return userError("{}: '{}' is {} there and {} in the model", file->path(), tensor.name,
                       shapeText(entry->shape), shapeText(tensor.shape));
    if (entry->dtype != tensor.dtype && !convert(*entry, 0, tensor.dtype, nullptr))
      return userError("{}: '{}' is {} there, which does not convert to {}", file->path(),
                       tensor.name, entry->storage, safeTensorsName(tensor.dtype));
  }
  LMC_LET(buffer, bufferForLargest(tensors, path));
  for (size_t i = 0; i < tensors.size(); ++i) {
    const SafeTensorsFile::Entry &entry = *model->tensors.at(tensors[i].name).entry;
    // Elements that need no conversion are copied bit by bit, so NaNs do not change.
    if (entry.dtype == tensors[i].dtype) {
      std::memcpy(buffer->get(), entry.data, entry.bytes);
    } else {
      uint64_t count = 1;
      for (uint64_t size : entry.shape)
        count *= size;
      convert(entry, count, tensors[i].dtype, buffer->get());
    }
    LMC_TRY(store(i, buffer->get(), tensors[i].bytes, 0));
  }
  return {};
}

} // namespace lmc
