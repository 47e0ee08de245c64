// Hugging Face checkpoints: config.json + model.safetensors (one file, or shards
// with model.safetensors.index.json), as `from_pretrained` reads and writes them.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

// Writes `directory` with the given config.json text and tensors, in the given dtypes. The folder
// is written under a temporary name and then renamed. If config.json has tie_word_embeddings,
// `lm_head.weight` is not written a second time. An earlier export in `directory` is replaced. A
// folder with any other contents is an Error, because replacing it would lose the user's files.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch);

// Fills every tensor, by name, from `path`: a folder as above, or a single .safetensors file. f32,
// bf16, f16 and f64 in the file are converted to the requested dtype: exactly if that is wider,
// else rounded once to the nearest value, ties to even. Missing, extra or misshapen tensors are
// Errors, found before the first call of `store`.
//
// Two kinds of extra tensors are ignored: rotary inverse frequencies, and `lm_head.weight` if it is
// not requested, as in a model with a tied head. Whether it equals the embedding is not checked,
// but a config.json beside the file with tie_word_embeddings = false is an Error.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
