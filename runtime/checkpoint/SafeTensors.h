// The safetensors format: 8-byte little-endian header length, JSON header, data.
// https://github.com/huggingface/safetensors (format section of the README)
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// What a file written holds.
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t xxh64 = 0; // seed 0, over the whole file
};

// Writes `tensors` in the given order, without gaps, the header padded so that
// data starts 64-byte aligned, and fsyncs. One tensor is held at a time; `digest`
// (may be null) is computed on the way. On an Error no file is left.
Result<void> writeSafeTensors(const std::string &path, const std::vector<TensorView> &tensors,
                              const FetchTensor &fetch,
                              const std::map<std::string, std::string> &metadata,
                              FileDigest *digest = nullptr);

// Size of the file that writeSafeTensors would write.
Result<uint64_t> safeTensorsBytes(const std::string &path, const std::vector<TensorView> &tensors,
                                  const std::map<std::string, std::string> &metadata);

// A mapped safetensors file whose header was verified against the file's size:
// every tensor's range is inside the file and as large as its shape and dtype
// say, ranges cover the data without gap or overlap, and names are unique.
class SafeTensorsFile {
public:
  static Result<std::unique_ptr<SafeTensorsFile>> open(const std::string &path);
  ~SafeTensorsFile();
  struct Entry {
    std::string name;
    std::string storage;              // dtype as the file spells it: "F32", "F16", "I64", ...
    std::optional<plan::DType> dtype; // nullopt: a dtype that plans don't have (F16, I64, ...)
    std::vector<uint64_t> shape;
    const void *data; // may be unaligned
    uint64_t bytes;
  };
  // In the order of their data.
  const std::vector<Entry> &entries() const;
  const Entry *find(const std::string &name) const;
  const std::map<std::string, std::string> &metadata() const;
  const std::string &path() const;

private:
  SafeTensorsFile();
  struct State;
  std::unique_ptr<State> state;
};

// The format's name of a dtype: "F32", "BF16", "F64", "I32", "I8".
const char *safeTensorsName(plan::DType dtype);

// "[4096, 11008]", for messages.
std::string shapeText(const std::vector<uint64_t> &shape);

} // namespace lmc
