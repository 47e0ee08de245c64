// The safetensors format. A file has the length of the header (8 bytes, little-endian), a JSON
// header and the data. https://github.com/huggingface/safetensors (format section of the README)
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lmc {

// Writes `tensors` to a file in the given order without gaps, and syncs it. The data starts at a
// multiple of 64 bytes. Only one tensor is in host memory at a time. `digest` (may be null) gets
// the size and hash of the file. After an Error no file is left.
Result<void> writeSafeTensors(const std::string &path, const std::vector<TensorView> &tensors,
                              const FetchTensor &fetch,
                              const std::map<std::string, std::string> &metadata,
                              FileDigest *digest = nullptr);

// Does the same as writeSafeTensors(), but all ranks of `group` write the file together. This rank
// writes the bytes parts[i] of tensor i, which fetch(i, data) must copy to `data`. Each byte of a
// tensor is in the part of exactly one rank.
Result<void> writeSafeTensorsTogether(Communicator &group, const std::string &path,
                                      const std::vector<TensorView> &tensors,
                                      const std::vector<ByteRange> &parts, const FetchTensor &fetch,
                                      const std::map<std::string, std::string> &metadata,
                                      FileDigest *digest = nullptr);

// Returns the size of the file that writeSafeTensors would write.
Result<uint64_t> safeTensorsBytes(const std::string &path, const std::vector<TensorView> &tensors,
                                  const std::map<std::string, std::string> &metadata);

// A mapped safetensors file with a verified header. Names are unique. Each tensor has the bytes
// that its shape and dtype need. The tensors cover the file's data without gaps or overlaps.
class SafeTensorsFile {
public:
  static Result<std::unique_ptr<SafeTensorsFile>> open(const std::string &path);
  struct Entry {
    std::string name;
    std::string storage;              // name of the dtype in the file: "F32", "F16", "I64", ...
    std::optional<plan::DType> dtype; // nullopt: plans do not have this dtype (I64, ...)
    std::vector<uint64_t> shape;
    const void *data; // address in the mapped file; may be unaligned
    uint64_t offset;  // position of the first byte in the file
    uint64_t bytes;
  };
  // In the order of their data in the file.
  const std::vector<Entry> &entries() const { return list; }
  const Entry *find(const std::string &name) const;
  const std::map<std::string, std::string> &metadata() const { return texts; }
  const std::string &path() const { return mapping.path(); }

private:
  explicit SafeTensorsFile(MappedFile mapping) : mapping(std::move(mapping)) {}
  MappedFile mapping;
  std::vector<Entry> list;
  std::unordered_map<std::string_view, const Entry *> byName;
  std::map<std::string, std::string> texts; // the metadata
};

using TensorBuffer = std::unique_ptr<std::byte[]>;

// Allocates memory for the largest of `tensors`. `path` is their file or folder, for error texts.
Result<TensorBuffer> bufferForLargest(const std::vector<TensorView> &tensors,
                                      const std::string &path);

// Returns the name of a dtype in the safetensors format: "F32", "BF16", "F8_E4M3".
const char *safeTensorsName(plan::DType dtype);

// Returns a shape as "[4096, 11008]".
std::string shapeText(const std::vector<uint64_t> &shape);

} // namespace lmc
