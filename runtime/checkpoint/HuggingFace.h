// Hugging Face checkpoints: config.json + model.safetensors (one file, or shards
// with model.safetensors.index.json), as `from_pretrained` reads and writes them.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

// Writes `directory` (atomically: temporary folder, then rename) with the given
// config.json text and tensors. Tied heads are not written twice.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch);

// Fills every tensor by name from `path`: a folder as above, or a single
// .safetensors file. f32, bf16 and f64 on disk convert to the dtype asked for,
// exactly where the target is wider. Missing, extra (but for `lm_head.weight` of
// a tied model and rotary inverse frequencies) or misshapen tensors are errors.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
