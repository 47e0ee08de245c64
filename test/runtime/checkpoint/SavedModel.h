// A small training state for checkpoint tests, whose every byte follows from
// (step, variant): what is read back can be checked without the writer.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"
#include "runtime/comm/LocalWorld.h"

#include <cstring>
#include <string>
#include <vector>

namespace lmc::test {

// A group of one rank.
inline Communicator &alone() {
  static const std::vector<std::unique_ptr<World>> worlds = makeLocalWorlds(1, 1);
  return worlds.front()->all();
}

inline const std::vector<std::string> &stateFiles() {
  static const std::vector<std::string> names = {"model.safetensors", "moment1.safetensors",
                                                 "moment2.safetensors"};
  return names;
}

// Later steps have larger tensors, so that no old contents can pass for new ones.
inline std::vector<TensorView> savedTensors(uint64_t step) {
  uint64_t rows = 40 + step;
  return {{"model.embed_tokens.weight", plan::DType::F32, {rows, 64}, nullptr, rows * 256},
          {"model.norm.weight", plan::DType::F32, {65}, nullptr, 260},
          {"odd", plan::DType::I8, {3}, nullptr, 3},
          {"after.odd", plan::DType::F64, {2}, nullptr, 16}};
}

inline std::string savedContents(uint64_t step, uint64_t variant, size_t file, size_t tensor) {
  uint64_t bytes = savedTensors(step)[tensor].bytes;
  uint64_t key = ((step * 1000 + variant) * 10 + file) * 10 + tensor;
  std::string contents(bytes, '\0');
  for (uint64_t i = 0; i < bytes; ++i)
    contents[i] = static_cast<char>((key * 0x9e3779b97f4a7c15 + i * 0xbf58476d1ce4e5b9) >> 56);
  return contents;
}

inline CheckpointState savedState(uint64_t step, uint64_t variant) {
  return {.step = step,
          .samples = step * 32,
          .tokens = step * 32 * 512,
          .position = step * 32 * 512,
          .sources = {},
          .fingerprint = "fingerprint",
          .run = nlohmann::json::object(),
          .extra = {{"variant", std::to_string(variant)}}};
}

inline std::vector<CheckpointFile> savedFiles(uint64_t step, uint64_t variant) {
  std::vector<CheckpointFile> files;
  for (size_t file = 0; file < stateFiles().size(); ++file)
    files.push_back({stateFiles()[file], savedTensors(step), {}, [=](size_t tensor, void *data) {
                       std::string contents = savedContents(step, variant, file, tensor);
                       std::memcpy(data, contents.data(), contents.size());
                       return Result<void>();
                     }});
  return files;
}

inline Result<void> save(const std::string &run, uint64_t step, int keep, uint64_t variant = 0) {
  return saveCheckpoint(alone(), run, savedState(step, variant), savedFiles(step, variant), keep);
}

// Loads all tensors of a checkpoint: contents[file][tensor].
struct Loaded {
  Result<std::optional<DamagedCheckpoint>> outcome;
  std::vector<std::vector<std::string>> contents;
};

inline Loaded load(const std::string &folder, const std::vector<TensorView> &tensors) {
  Loaded loaded{std::optional<DamagedCheckpoint>(), {}};
  loaded.contents.resize(stateFiles().size());
  std::vector<CheckpointTarget> targets;
  for (size_t file = 0; file < stateFiles().size(); ++file) {
    std::vector<std::string> &contents = loaded.contents[file];
    for (const TensorView &tensor : tensors)
      contents.emplace_back(tensor.bytes, '?');
    targets.push_back({stateFiles()[file], tensors, {},
                       [&contents](size_t tensor, const void *data, uint64_t bytes,
                                   uint64_t offset) -> Result<void> {
                         if (offset + bytes > contents[tensor].size())
                           return Error{"bytes beyond the tensor"};
                         std::memcpy(contents[tensor].data() + offset, data, bytes);
                         return {};
                       }});
  }
  loaded.outcome = loadCheckpoint(alone(), folder, targets);
  return loaded;
}

// An Error unless the folder verifies and holds what (its step, its variant) say.
inline Result<CheckpointState> checkContents(const std::string &folder) {
  Result<CheckpointState> state = readCheckpointState(folder, true);
  if (!state)
    return state;
  uint64_t variant = std::stoull(state->extra["variant"]);
  CheckpointState expected = savedState(state->step, variant);
  if (state->samples != expected.samples || state->tokens != expected.tokens ||
      state->fingerprint != expected.fingerprint)
    return Error{folder + ": another state"};
  Loaded loaded = load(folder, savedTensors(state->step));
  LMC_TRY(loaded.outcome);
  if (*loaded.outcome)
    return Error{(*loaded.outcome)->fault};
  for (size_t file = 0; file < stateFiles().size(); ++file)
    for (size_t tensor = 0; tensor < loaded.contents[file].size(); ++tensor)
      if (loaded.contents[file][tensor] != savedContents(state->step, variant, file, tensor))
        return Error{folder + ": another step's contents"};
  return state;
}

} // namespace lmc::test
