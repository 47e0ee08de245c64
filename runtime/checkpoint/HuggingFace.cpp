#include "runtime/checkpoint/HuggingFace.h"

#include "runtime/checkpoint/SafeTensors.h"
#include "runtime/plan/FloatConvert.h"
#include "runtime/support/File.h"
#include "runtime/support/Json.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <set>
#include <sys/stat.h>

namespace lmc {

static constexpr const char *kConfigFile = "config.json";
static constexpr const char *kModelFile = "model.safetensors";
static constexpr const char *kIndexFile = "model.safetensors.index.json";
static constexpr const char *kHead = "lm_head.weight";
static constexpr const char *kTieKey = "tie_word_embeddings";
static constexpr uint64_t kMaximumJsonBytes = 64 << 20;

//===--- Element conversion -----------------------------------------------===//

// Converts an IEEE half-precision number to f32. The result is exact.
static float fromHalf(uint16_t bits) {
  uint32_t sign = uint32_t(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 0x1f;
  uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) { // zero and subnormals: mantissa * 2^-24
    float magnitude = std::ldexp(static_cast<float>(mantissa), -24);
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  uint32_t wide = exponent == 31 ? 255 : exponent - 15 + 127;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

// Converts `count` elements of a tensor in a file (which may be "F16") to a plan's dtype. Returns
// false if one of the two is not a float type; with `count` 0 the function only tests this.
static bool convert(const SafeTensorsFile::Entry &from, uint64_t count, plan::DType to,
                    void *target) {
  if (from.storage != "F16")
    return from.dtype && convertFloats(*from.dtype, from.data, to, target, count);
  constexpr uint64_t kBlock = 256;
  float block[kBlock];
  bool floats = convertFloats(plan::DType::F32, block, to, target, 0);
  for (uint64_t begin = 0; floats && begin < count; begin += kBlock) {
    const uint64_t size = std::min(kBlock, count - begin);
    for (uint64_t i = 0; i < size; ++i) {
      uint16_t bits; // a tensor in a file may start at any byte
      std::memcpy(&bits, static_cast<const std::byte *>(from.data) + (begin + i) * sizeof(bits),
                  sizeof(bits));
      block[i] = fromHalf(bits);
    }
    floats = convertFloats(plan::DType::F32, block, to,
                           static_cast<std::byte *>(target) + begin * byteWidth(to), size);
  }
  return floats;
}

//===--- Export -----------------------------------------------------------===//

// Returns an error unless `directory` is missing, empty or an earlier export: an export replaces
// the folder, and must not remove any other file.
static Result<void> checkReplaceable(const std::string &directory) {
  if (!exists(directory))
    return {};
  Result<std::vector<std::string>> names = listFolder(directory);
  if (!names)
    return names.error();
  for (const std::string &name : *names)
    if (name != kConfigFile && name != kModelFile)
      return Error{fmt::format("{}: exists and holds '{}', which an export would remove: name "
                               "another folder",
                               directory, name)};
  return {};
}

static Result<void> writeExport(const std::string &partial, const std::string &configJson,
                                const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                                const std::map<std::string, std::string> &metadata) {
  LMC_TRY(writeSafeTensors(partial + "/" + kModelFile, tensors, fetch, metadata));
  LMC_TRY(writeTextFile(partial + "/" + kConfigFile, configJson));
  return syncFolder(partial);
}

Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch) {
  std::filesystem::path target = std::filesystem::path(directory).lexically_normal();
  if (!target.has_filename()) // `directory` ends in a slash, as "a/b/"
    target = target.parent_path();
  std::string to = target.string(), name = target.filename().string();
  std::string parent = target.has_parent_path() ? target.parent_path().string() : ".";
  if (name.empty() || name == "." || name == "..")
    return Error{fmt::format("cannot export to '{}': name a folder of its own", directory)};
  Result<nlohmann::json> config = parseJsonObject(configJson, to + "/" + kConfigFile);
  if (!config)
    return config.error();
  auto tie = config->find(kTieKey);
  bool tied = tie != config->end() && tie->is_boolean() && tie->get<bool>();

  // `written` lists the tensors to write, and `source` the index of each in `tensors`.
  std::vector<TensorView> written;
  std::vector<size_t> source;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!tied || tensors[i].name != kHead) {
      written.push_back(tensors[i]);
      source.push_back(i);
    }
  FetchTensor fetchWritten = [&](size_t index, void *data) { return fetch(source[index], data); };
  // Hugging Face's from_pretrained rejects a file whose metadata does not name a framework ("pt").
  std::map<std::string, std::string> metadata = {{"format", "pt"}};

  LMC_TRY(checkReplaceable(to));
  LMC_TRY(makeFolders(parent));
  std::string partial = parent + "/." + name + ".partial";
  LMC_TRY(removeTree(partial));
  Result<uint64_t> needed = safeTensorsBytes(to + "/" + kModelFile, written, metadata);
  if (!needed)
    return needed.error();
  Result<uint64_t> free = freeBytes(parent);
  if (!free)
    return free.error();
  if (*needed + configJson.size() > *free)
    return Error{fmt::format("cannot export to {}: the disk is too full: {} bytes needed, {} free",
                             to, *needed + configJson.size(), *free),
                 ExitCode::Failure};
  if (::mkdir(partial.c_str(), 0777) != 0)
    return systemError("create", partial, errno);
  Result<void> result = writeExport(partial, configJson, written, fetchWritten, metadata);
  if (result)
    result = publishFolder(partial, to, parent + "/." + name + ".replaced");
  // Removing the folder may fail too; the caller gets the first error.
  if (!result)
    (void)static_cast<bool>(removeTree(partial));
  return result;
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
};
} // namespace

static Result<void> addFile(Model &model, const std::string &path) {
  Result<std::unique_ptr<SafeTensorsFile>> file = SafeTensorsFile::open(path);
  if (!file)
    return file.error();
  for (const SafeTensorsFile::Entry &entry : (*file)->entries())
    if (auto [place, isNew] = model.tensors.try_emplace(entry.name, file->get(), &entry); !isNew)
      return Error{
          fmt::format("{}: '{}' is in {} too", path, entry.name, place->second.file->path())};
  model.files.push_back(std::move(*file));
  return {};
}

static Result<void> addShards(Model &model, const std::string &folder) {
  std::string indexPath = folder + "/" + kIndexFile;
  Result<nlohmann::json> index = readJsonObject(indexPath, kMaximumJsonBytes);
  if (!index)
    return index.error();
  auto map = index->find("weight_map");
  if (map == index->end() || !map->is_object())
    return Error{fmt::format("{}: no object 'weight_map'", indexPath)};
  std::set<std::string> files;
  for (const auto &[name, file] : map->get_ref<const nlohmann::json::object_t &>()) {
    const std::string *fileName = file.get_ptr<const std::string *>();
    // A shard must lie beside its index: the index must not name files in other folders.
    if (!fileName || fileName->empty() ||
        fileName->find_first_of(std::string("/\0", 2)) != std::string::npos)
      return Error{fmt::format("{}: the file of '{}' is not a name of a file beside the index",
                               indexPath, name)};
    files.insert(*fileName);
  }
  for (const std::string &file : files)
    LMC_TRY(addFile(model, folder + "/" + file));
  for (const auto &[name, file] : map->get_ref<const nlohmann::json::object_t &>()) {
    std::string path = folder + "/" + file.get<std::string>();
    auto found = model.tensors.find(name);
    if (found == model.tensors.end() || found->second.file->path() != path)
      return Error{
          fmt::format("{}: no tensor '{}', which {} expects there", path, name, kIndexFile)};
  }
  return {};
}

static bool isFolder(const std::string &path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
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
    return Error{fmt::format(
        "{}: neither {} nor {} there{}", path, kModelFile, kIndexFile,
        exists(path + "/pytorch_model.bin") ? ": save it again with safe_serialization=True" : "")};
  return model;
}

// Returns true if a config.json beside the weights has tie_word_embeddings = false, which means
// that the head is a separate matrix.
static Result<bool> saysUntied(const std::string &path) {
  std::string configPath = path + "/" + kConfigFile;
  if (!isFolder(path) || !exists(configPath))
    return false;
  Result<nlohmann::json> config = readJsonObject(configPath, kMaximumJsonBytes);
  if (!config)
    return config.error();
  auto tie = config->find(kTieKey);
  return tie != config->end() && tie->is_boolean() && !tie->get<bool>();
}

// Formats names as "'a', 'b', 'c' and 7 more".
static std::string listNames(const std::vector<std::string> &names) {
  constexpr size_t kShown = 3;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += fmt::format("{}'{}'", i ? ", " : "", names[i]);
  if (names.size() > kShown)
    text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store) {
  // Checks that the bytes of each view match its shape, because `buffer` gets the size of the
  // largest view.
  if (Result<uint64_t> bytes = safeTensorsBytes(path, tensors, {}); !bytes)
    return bytes.error();
  Result<Model> model = openModel(path);
  if (!model)
    return model.error();

  std::set<std::string_view> wanted;
  std::vector<std::string> missing, extra;
  for (const TensorView &tensor : tensors) {
    wanted.insert(tensor.name);
    if (!model->tensors.contains(tensor.name))
      missing.push_back(tensor.name);
  }
  bool extraHead = false;
  for (const auto &[name, tensor] : model->tensors) {
    if (wanted.contains(name) || name.ends_with("rotary_emb.inv_freq"))
      continue;
    if (name == kHead)
      extraHead = true;
    else
      extra.push_back(name);
  }
  if (missing == std::vector<std::string>{kHead} && extra.empty())
    return Error{fmt::format("{}: no '{}': its head is tied to the embedding; set "
                             "model.tie_word_embeddings = true",
                             path, kHead)};
  if (!missing.empty())
    return Error{fmt::format("{}: lacks {}, which the model has", path, listNames(missing))};
  if (!extra.empty())
    return Error{fmt::format("{}: has {}, which the model lacks", path, listNames(extra))};
  if (extraHead) {
    Result<bool> untied = saysUntied(path);
    if (!untied)
      return untied.error();
    if (*untied)
      return Error{fmt::format("{}: its head is not tied to the embedding, the model's is; set "
                               "model.tie_word_embeddings = false",
                               path)};
  }

  for (const TensorView &tensor : tensors) {
    auto [file, entry] = model->tensors.at(tensor.name);
    if (entry->shape != tensor.shape)
      return Error{fmt::format("{}: '{}' is {} there and {} in the model", file->path(),
                               tensor.name, shapeText(entry->shape), shapeText(tensor.shape))};
    if (entry->dtype != tensor.dtype && !convert(*entry, 0, tensor.dtype, nullptr))
      return Error{fmt::format("{}: '{}' is {} there, which does not convert to {}", file->path(),
                               tensor.name, entry->storage, safeTensorsName(tensor.dtype))};
  }
  Result<TensorBuffer> buffer = bufferForLargest(tensors, path);
  if (!buffer)
    return buffer.error();
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
    LMC_TRY(store(i, buffer->get()));
  }
  return {};
}

} // namespace lmc
