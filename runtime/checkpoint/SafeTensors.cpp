#include "runtime/checkpoint/SafeTensors.h"

#include "runtime/comm/Agree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <tuple>
#include <unistd.h>

namespace lmc {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

// The maximum size of a header, as in the reference implementation of safetensors.
static constexpr uint64_t kMaximumHeaderBytes = 100'000'000;
static constexpr size_t kMaximumDimensions = 64;
static constexpr uint64_t kDataAlignment = 64;
// A chunk of this many bytes is hashed and then written, while it is still in the cache.
static constexpr uint64_t kChunkBytes = 1 << 20;

namespace {
struct FormatDType {
  const char *name;
  uint64_t width; // bytes
  std::optional<plan::DType> dtype;
};
} // namespace

static const FormatDType kFormatDTypes[] = {
    {"F32", 4, plan::DType::F32},
    {"BF16", 2, plan::DType::BF16},
    {"F64", 8, plan::DType::F64},
    {"I32", 4, plan::DType::I32},
    {"I8", 1, plan::DType::I8},
    {"F16", 2, plan::DType::F16},
    {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},
    {"U32", 4, std::nullopt},
    {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},
    {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
    {"F8_E4M3", 1, plan::DType::F8E4M3},
    {"F8_E5M2", 1, plan::DType::F8E5M2},
};

static const FormatDType *findFormatDType(std::string_view name) {
  for (const FormatDType &candidate : kFormatDTypes)
    if (name == candidate.name)
      return &candidate;
  return nullptr;
}

static const FormatDType &formatDType(plan::DType dtype) { // kFormatDTypes has every plan::DType
  return *std::ranges::find(kFormatDTypes, std::optional(dtype), &FormatDType::dtype);
}

const char *safeTensorsName(plan::DType dtype) { return formatDType(dtype).name; }

std::string shapeText(const std::vector<uint64_t> &shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Returns the number of bytes of a dense tensor, or nullopt if it needs more than 64 bits.
static std::optional<uint64_t> denseBytes(const std::vector<uint64_t> &shape, uint64_t width) {
  uint64_t bytes = width;
  for (uint64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes))
      return std::nullopt;
  return bytes;
}

Result<TensorBuffer> bufferForLargest(const std::vector<TensorView> &tensors,
                                      const std::string &path) {
  uint64_t largest = 0;
  for (const TensorView &tensor : tensors)
    largest = std::max(largest, tensor.bytes);
  TensorBuffer buffer(new (std::nothrow) std::byte[largest]);
  if (!buffer)
    return machineError("not enough memory for the {} bytes of the largest tensor of {}", largest,
                        path);
  return buffer;
}

//===--- Writing ----------------------------------------------------------===//

// Returns the first bytes of a file: the header's length, the header, and padding.
static Result<std::string> headerText(const std::string &path,
                                      const std::vector<TensorView> &tensors,
                                      const std::map<std::string, std::string> &metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  // A lookup in an ordered_json is linear, so duplicate names are found with a hash map.
  std::unordered_map<std::string_view, size_t> seen;
  auto &members = header.get_ref<nlohmann::ordered_json::object_t &>();
  if (!metadata.empty())
    members.emplace_back("__metadata__", metadata);
  uint64_t offset = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorView &tensor = tensors[i];
    if (tensor.name == "__metadata__" || !seen.emplace(tensor.name, i).second)
      return userError("{}: two tensors named '{}'", path, tensor.name);
    if (denseBytes(tensor.shape, formatDType(tensor.dtype).width) != tensor.bytes)
      return userError("{}: tensor '{}' of shape {} and dtype {} cannot have {} bytes", path,
                       tensor.name, shapeText(tensor.shape), safeTensorsName(tensor.dtype),
                       tensor.bytes);
    uint64_t begin = offset;
    if (__builtin_add_overflow(offset, tensor.bytes, &offset))
      return userError("{}: more than 2^64 bytes of tensors", path);
    members.emplace_back(tensor.name,
                         nlohmann::ordered_json{{"dtype", safeTensorsName(tensor.dtype)},
                                                {"shape", tensor.shape},
                                                {"data_offsets", {begin, offset}}});
  }
  std::string json;
  try {
    json = header.dump();
  } catch (const nlohmann::json::exception &) {
    return userError("{}: a tensor's name or the metadata is not UTF-8", path);
  }
  uint64_t length = sizeof(uint64_t) + json.size();
  json.append((kDataAlignment - length % kDataAlignment) % kDataAlignment, ' ');
  if (json.size() > kMaximumHeaderBytes)
    return userError(
        "{}: the header would have {} bytes, more than the {} that the safetensors format allows",
        path, json.size(), kMaximumHeaderBytes);
  uint64_t jsonBytes = json.size();
  return std::string(reinterpret_cast<const char *>(&jsonBytes), sizeof jsonBytes) + json;
}

static Result<void> writeBody(const std::string &path, const std::string &header,
                              const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                              FileDigest *digest) {
  LMC_LET(buffer, bufferForLargest(tensors, path));

  LMC_LET(file, File::create(path));
  FileHasher hasher;
  auto write = [&](const char *data, uint64_t bytes) -> Result<void> {
    for (uint64_t done = 0; done < bytes;) {
      uint64_t chunk = std::min(kChunkBytes, bytes - done);
      if (digest)
        hasher.update(data + done, chunk);
      LMC_TRY(file->write(data + done, chunk));
      done += chunk;
    }
    return {};
  };
  LMC_TRY(write(header.data(), header.size()));
  for (size_t i = 0; i < tensors.size(); ++i) {
    LMC_TRY(fetch(i, buffer->get()));
    LMC_TRY(write(reinterpret_cast<const char *>(buffer->get()), tensors[i].bytes));
  }
  LMC_TRY(file->sync());
  LMC_TRY(file->close());
  if (digest)
    *digest = hasher.digest();
  return {};
}

Result<void> writeSafeTensors(const std::string &path, const std::vector<TensorView> &tensors,
                              const FetchTensor &fetch,
                              const std::map<std::string, std::string> &metadata,
                              FileDigest *digest) {
  LMC_LET(header, headerText(path, tensors, metadata));
  Result<void> written = writeBody(path, *header, tensors, fetch, digest);
  if (!written)
    ::unlink(path.c_str());
  return written;
}

// Creates the file with its header and its full size.
static Result<void> createSized(const std::string &path, const std::string &header,
                                const std::vector<TensorView> &tensors) {
  LMC_LET(file, File::create(path));
  LMC_TRY(file->write(header.data(), header.size()));
  uint64_t bytes = header.size();
  for (const TensorView &tensor : tensors)
    bytes += tensor.bytes;
  LMC_TRY(file->resize(bytes));
  LMC_TRY(file->sync());
  return file->close();
}

static Result<void> writeParts(const std::string &path, uint64_t begin,
                               const std::vector<TensorView> &tensors,
                               const std::vector<ByteRange> &parts, const FetchTensor &fetch) {
  uint64_t largest = 0;
  for (const ByteRange &part : parts)
    largest = std::max(largest, part.bytes);
  std::vector<std::byte> buffer(largest);
  LMC_LET(file, File::openForWriting(path));
  for (size_t i = 0; i < tensors.size(); begin += tensors[i].bytes, ++i) {
    if (parts[i].bytes == 0)
      continue;
    LMC_TRY(fetch(i, buffer.data()));
    LMC_TRY(file->writeAt(buffer.data(), parts[i].bytes, begin + parts[i].offset));
  }
  LMC_TRY(file->sync());
  return file->close();
}

Result<void> writeSafeTensorsTogether(Communicator &group, const std::string &path,
                                      const std::vector<TensorView> &tensors,
                                      const std::vector<ByteRange> &parts, const FetchTensor &fetch,
                                      const std::map<std::string, std::string> &metadata,
                                      FileDigest *digest) {
  if (group.size() == 1)
    return writeSafeTensors(path, tensors, fetch, metadata, digest);
  const bool first = group.position() == 0;
  auto write = [&]() -> Result<void> {
    LMC_LET(header, allSucceed(group, headerText(path, tensors, metadata)));
    LMC_TRY(allSucceed(group, first ? createSized(path, *header, tensors) : Result<void>()));
    LMC_TRY(allSucceed(group, writeParts(path, header->size(), tensors, parts, fetch)));
    if (digest)
      LMC_SET(*digest, digestTogether(path, group));
    return {};
  };
  Result<void> written = write();
  if (!written && first)
    ::unlink(path.c_str());
  return written;
}

Result<uint64_t> safeTensorsBytes(const std::string &path, const std::vector<TensorView> &tensors,
                                  const std::map<std::string, std::string> &metadata) {
  LMC_LET(header, headerText(path, tensors, metadata));
  uint64_t bytes = header->size();
  for (const TensorView &tensor : tensors)
    bytes += tensor.bytes;
  return bytes;
}

//===--- Reading ----------------------------------------------------------===//

namespace {

// A tensor as the header describes it, not yet checked.
struct HeaderEntry {
  std::string name;
  std::optional<std::string> dtype;
  std::optional<std::vector<uint64_t>> shape;
  std::optional<std::vector<uint64_t>> offsets;
};

// Parses a header, which must be
//   {"__metadata__": {STRING: STRING...}, NAME: {"dtype": STRING, "shape": [N...],
//    "data_offsets": [N, N]}...}
// and stores its values. Anything else ends the parsing and sets `problem`.
class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
public:
  std::vector<HeaderEntry> tensors;
  std::map<std::string, std::string> metadata;
  std::string problem;

  bool start_object(std::size_t) override {
    if (place == Place::Outside) {
      place = Place::Root;
      return true;
    }
    if (place != Place::RootValue)
      return refuse("an object where none belongs");
    if (name == "__metadata__") {
      if (hadMetadata)
        return refuse("two objects named '__metadata__'");
      hadMetadata = true;
      place = Place::Metadata;
    } else {
      tensors.push_back({name, {}, {}, {}});
      place = Place::Tensor;
    }
    return true;
  }
  bool key(string_t &text) override {
    if (place == Place::Root) {
      name = text;
      place = Place::RootValue;
    } else if (place == Place::Metadata) {
      field = text;
      place = Place::MetadataValue;
    } else if (text == "dtype") {
      place = Place::DType;
    } else if (text == "shape") {
      place = Place::ShapeStart;
    } else if (text == "data_offsets") {
      place = Place::OffsetsStart;
    } else {
      return refuse(fmt::format("unknown field '{}'", text));
    }
    return true;
  }
  bool end_object() override {
    place = place == Place::Root ? Place::Done : Place::Root;
    return true;
  }
  bool string(string_t &text) override {
    if (place == Place::MetadataValue) {
      if (!metadata.emplace(field, text).second)
        return refuse(fmt::format("two metadata entries named '{}'", field));
      place = Place::Metadata;
      return true;
    }
    if (place != Place::DType)
      return refuse("a string where none belongs");
    if (tensors.back().dtype)
      return refuse(fmt::format("tensor '{}' has two dtypes", name));
    tensors.back().dtype = text;
    place = Place::Tensor;
    return true;
  }
  bool start_array(std::size_t) override {
    bool isShape = place == Place::ShapeStart;
    if (!isShape && place != Place::OffsetsStart)
      return refuse("an array where none belongs");
    std::optional<std::vector<uint64_t>> &list =
        isShape ? tensors.back().shape : tensors.back().offsets;
    if (list)
      return refuse(fmt::format("tensor '{}' has two shapes or offsets", name));
    list.emplace();
    place = isShape ? Place::Shape : Place::Offsets;
    return true;
  }
  bool end_array() override {
    place = Place::Tensor;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (place == Place::Shape) {
      if (tensors.back().shape->size() == kMaximumDimensions)
        return refuse(
            fmt::format("tensor '{}' has more than {} dimensions", name, kMaximumDimensions));
      tensors.back().shape->push_back(value);
      return true;
    }
    if (place == Place::Offsets) {
      if (tensors.back().offsets->size() == 2)
        return refuse(fmt::format("tensor '{}' has more than two offsets", name));
      tensors.back().offsets->push_back(value);
      return true;
    }
    return refuse("a number where none belongs");
  }
  bool number_integer(number_integer_t) override { return refuse("a negative number"); }
  bool number_float(number_float_t, const string_t &) override {
    return refuse("a number that is not a 64-bit integer");
  }
  bool null() override { return refuse("a null"); }
  bool boolean(bool) override { return refuse("a boolean"); }
  bool binary(binary_t &) override { return refuse("binary data"); }
  bool parse_error(std::size_t position, const std::string &,
                   const nlohmann::detail::exception &) override {
    return refuse(fmt::format("no JSON from byte {} on", position));
  }

private:
  enum class Place {
    Outside,
    Root,
    RootValue,
    Metadata,
    MetadataValue,
    Tensor,
    DType,
    ShapeStart,
    Shape,
    OffsetsStart,
    Offsets,
    Done
  };
  bool refuse(std::string what) {
    problem = std::move(what);
    return false;
  }
  Place place = Place::Outside;
  std::string name, field;
  bool hadMetadata = false;
};

} // namespace

const SafeTensorsFile::Entry *SafeTensorsFile::find(const std::string &name) const {
  auto found = byName.find(name);
  return found == byName.end() ? nullptr : found->second;
}

Result<std::unique_ptr<SafeTensorsFile>> SafeTensorsFile::open(const std::string &path) {
  LMC_LET(mapping, MappedFile::open(path));
  auto bad = [&](const std::string &what) {
    return userError("{}: damaged or not a safetensors file: {}", path, what);
  };
  const std::byte *start = mapping->data();
  uint64_t fileBytes = mapping->size();
  uint64_t headerBytes;
  if (fileBytes < sizeof headerBytes)
    return bad(fmt::format("it has only {} bytes", fileBytes));
  std::memcpy(&headerBytes, start, sizeof headerBytes);
  if (headerBytes > fileBytes - sizeof headerBytes)
    return bad(fmt::format("its header of {} bytes does not fit into its {} bytes", headerBytes,
                           fileBytes));
  if (headerBytes > kMaximumHeaderBytes)
    return bad(
        fmt::format("its header of {} bytes is larger than {}", headerBytes, kMaximumHeaderBytes));
  const std::byte *data = start + sizeof headerBytes + headerBytes;
  uint64_t dataBytes = fileBytes - sizeof headerBytes - headerBytes;

  HeaderHandler header;
  const char *json = reinterpret_cast<const char *>(start + sizeof headerBytes);
  if (!nlohmann::json::sax_parse(json, json + headerBytes, &header))
    return bad("its header has " + header.problem);

  std::unique_ptr<SafeTensorsFile> file(new SafeTensorsFile(std::move(*mapping)));
  std::vector<Entry> &entries = file->list;
  file->texts = std::move(header.metadata);
  entries.reserve(header.tensors.size());
  for (HeaderEntry &tensor : header.tensors) {
    auto badTensor = [&](const std::string &what) {
      return bad(fmt::format("tensor '{}' {}", tensor.name, what));
    };
    if (!tensor.dtype || !tensor.shape || !tensor.offsets || tensor.offsets->size() != 2)
      return badTensor("lacks its dtype, shape or offsets");
    const FormatDType *dtype = findFormatDType(*tensor.dtype);
    if (!dtype)
      return badTensor(fmt::format("has the unknown dtype '{}'", *tensor.dtype));
    uint64_t begin = (*tensor.offsets)[0], end = (*tensor.offsets)[1];
    if (begin > end || end > dataBytes)
      return badTensor(fmt::format("lies at bytes {} to {} of {}", begin, end, dataBytes));
    if (denseBytes(*tensor.shape, dtype->width) != end - begin)
      return badTensor(fmt::format("of shape {} and dtype {} has {} bytes",
                                   shapeText(*tensor.shape), dtype->name, end - begin));
    entries.push_back({std::move(tensor.name), std::move(*tensor.dtype), dtype->dtype,
                       std::move(*tensor.shape), data + begin,
                       sizeof headerBytes + headerBytes + begin, end - begin});
  }

  // The tensors have neither gaps nor overlaps if each begins at the end of the previous one.
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) {
    return std::tie(a.data, a.bytes) < std::tie(b.data, b.bytes);
  });
  const std::byte *next = data;
  for (const Entry &entry : entries) {
    if (entry.data != next)
      return bad(fmt::format("tensor '{}' leaves a gap or overlaps another", entry.name));
    next += entry.bytes;
  }
  if (next != data + dataBytes)
    return bad(fmt::format("its tensors end {} bytes before it does", data + dataBytes - next));
  for (const Entry &entry : entries)
    if (!file->byName.emplace(entry.name, &entry).second)
      return bad(fmt::format("two tensors named '{}'", entry.name));
  return file;
}

} // namespace lmc
