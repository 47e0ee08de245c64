// The safetensors format: 8-byte little-endian header length, JSON header, data.
// https://github.com/huggingface/safetensors (format section of the README)
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

#include <memory>
#include <string>
#include <vector>

namespace lmc {

// Writes `tensors` in the given order, padded so that data starts 64-byte
// aligned, and fsyncs. `convertTo` writes another float dtype than stored.
Result<void> writeSafeTensors(const std::string &path, const std::vector<TensorView> &tensors,
                              const FetchTensor &fetch,
                              const std::map<std::string, std::string> &metadata);

// A mapped safetensors file whose header was verified against the file's size.
class SafeTensorsFile {
public:
  static Result<std::unique_ptr<SafeTensorsFile>> open(const std::string &path);
  ~SafeTensorsFile();
  struct Entry {
    std::string name;
    plan::DType dtype;
    std::vector<uint64_t> shape;
    const void *data; // may be unaligned
    uint64_t bytes;
  };
  const std::vector<Entry> &entries() const;
  const Entry *find(const std::string &name) const;

private:
  SafeTensorsFile();
  struct State;
  std::unique_ptr<State> state;
};

} // namespace lmc
