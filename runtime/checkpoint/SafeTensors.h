// The safetensors format: an 8-byte little-endian header length, a JSON header, the data.
// https://github.com/huggingface/safetensors (format section of the README)
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Size and hash of a written file.
struct FileDigest {
  uint64_t bytes = 0;
  uint64_t xxh64 = 0; // seed 0, over the whole file
};

// Writes `tensors` in the given order without gaps, and fsyncs. The header is padded so that the
// data starts at a multiple of 64 bytes. Only one tensor is in host memory at a time. `digest` (may
// be null) is computed during the write. After an Error no file is left.
Result<void> writeSafeTensors(const std::string &path, const std::vector<TensorView> &tensors,
                              const FetchTensor &fetch,
                              const std::map<std::string, std::string> &metadata,
                              FileDigest *digest = nullptr);

// Returns the size of the file that writeSafeTensors would write.
Result<uint64_t> safeTensorsBytes(const std::string &path, const std::vector<TensorView> &tensors,
                                  const std::map<std::string, std::string> &metadata);

// A mapped safetensors file with a verified header: every tensor's range is inside the file and as
// large as its shape and dtype require, the ranges cover the data without gaps or overlaps, and
// names are unique.
class SafeTensorsFile {
public:
  static Result<std::unique_ptr<SafeTensorsFile>> open(const std::string &path);
  ~SafeTensorsFile();
  struct Entry {
    std::string name;
    std::string storage;              // dtype in the file: "F32", "F16", "I64", ...
    std::optional<plan::DType> dtype; // nullopt: a dtype that plans lack (F16, I64, ...)
    std::vector<uint64_t> shape;
    const void *data; // may be unaligned
    uint64_t bytes;
  };
  // All tensors, in the order of their data.
  const std::vector<Entry> &entries() const;
  const Entry *find(const std::string &name) const;
  const std::map<std::string, std::string> &metadata() const;
  const std::string &path() const;

private:
  SafeTensorsFile();
  struct State;
  std::unique_ptr<State> state;
};

// Returns the format's name of a dtype: "F32", "BF16", "F64", "I32", "I8".
const char *safeTensorsName(plan::DType dtype);

// Returns "[4096, 11008]", for messages.
std::string shapeText(const std::vector<uint64_t> &shape);

} // namespace lmc
