// Hugging Face checkpoints: a folder with config.json and model.safetensors (one file, or several
// with model.safetensors.index.json), as Hugging Face's `from_pretrained` reads and
// `save_pretrained` writes.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

// Writes the folder `directory` with config.json and the tensors, each in its dtype. The folder is
// written under a temporary name and then renamed. If config.json has tie_word_embeddings = true,
// `lm_head.weight` is left out. An earlier export in `directory` is replaced. If the folder holds
// anything else, the result is an Error, because replacing it would lose the user's files.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch);

// Fills every tensor, by name, from `path`: a folder like those of exportHuggingFace, or a single
// .safetensors file. f32, bf16, f16 and f64 are converted to the requested dtype: exactly if the
// requested dtype can hold the value, else rounded once to nearest even. A tensor that is missing,
// not requested or of another shape is an Error, which is found before the first call of `store`.
//
// Two kinds of tensors may be in the file without being requested: the inverse frequencies of RoPE,
// and `lm_head.weight`, as in a model whose head is tied to the embedding. The function does not
// check that the two are equal, but returns an Error if a config.json beside the file has
// tie_word_embeddings = false.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
