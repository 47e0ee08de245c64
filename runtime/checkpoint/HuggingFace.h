// Hugging Face checkpoints: config.json + model.safetensors (one file, or shards
// with model.safetensors.index.json), as `from_pretrained` reads and writes them.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

// Writes `directory` (atomically: temporary folder, then rename) with the given
// config.json text and tensors, in the dtypes given. Tied heads are not written
// twice: where config.json says tie_word_embeddings, `lm_head.weight` is left out.
// An earlier export there is replaced; a folder that holds anything else is an
// Error, since replacing it would lose the user's files.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch);

// Fills every tensor by name from `path`: a folder as above, or a single
// .safetensors file. f32, bf16, f16 and f64 on disk convert to the dtype asked for,
// exactly where the target is wider, else rounded once to the nearest even.
// Missing, extra or misshapen tensors are errors, found before the first `store`.
//
// Two kinds of extra tensors are ignored: rotary inverse frequencies, and
// `lm_head.weight` when it is not asked for, as in a tied model. That it equals
// the embedding is not checked, but a config.json beside it that says
// tie_word_embeddings = false is an Error.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
