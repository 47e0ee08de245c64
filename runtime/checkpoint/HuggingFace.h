// Hugging Face checkpoints: a folder with config.json and model.safetensors (one file, or several
// with model.safetensors.index.json), as Hugging Face's `from_pretrained` reads and
// `save_pretrained` writes.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

struct ExportOptions {
  std::optional<plan::DType> dtype; // a float type for all tensors; nullopt: each keeps its dtype
  // The largest number of bytes of tensors in one file; a larger tensor gets a file of its own.
  uint64_t maximumShardBytes = 5'000'000'000;
  // The ids that begin and end a document; nullopt: those of config.json.
  std::optional<uint32_t> bosTokenId, eosTokenId;
  // The rows of the embedding and of the head are padded with zeros to a multiple of this number,
  // which vocab_size then includes. 1: no padding.
  uint64_t vocabMultiple = 1;
  std::vector<std::string> files; // files that are copied to the folder, such as a tokenizer's
};

// Writes the folder `directory`: config.json, generation_config.json, the tensors and the copied
// files. The tensors are in model.safetensors or, if they are larger than the limit, in files
// model-00001-of-0000N.safetensors with model.safetensors.index.json, divided as `save_pretrained`
// divides them: in the given order, each file as full as the limit allows. A narrower dtype is
// rounded to nearest even. Only one tensor is in host memory at a time.
//
// `configJson` is config.json; its dtype and, if they are given, the ids are replaced. If it has
// tie_word_embeddings = true, `lm_head.weight` is left out.
//
// The folder is written under a temporary name and then renamed. An earlier export in `directory`
// is replaced. If the folder holds any file that an export does not write, the result is an Error,
// because replacing it would lose the user's files.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                               const ExportOptions &options = {});

// Returns the paths of a tokenizer's files. `path` is one of them ("tokenizer.json") or a folder
// with them. Error: no file there has a name that transformers gives to a tokenizer's files.
Result<std::vector<std::string>> tokenizerFiles(const std::string &path);

// Fills every tensor, by name, from `path`: a folder like those of exportHuggingFace, or a single
// .safetensors file. f32, bf16, f16 and f64 are converted to the requested dtype: exactly if the
// requested dtype can hold the value, else rounded once to nearest even. A tensor that is missing,
// not requested or of another shape is an Error, which is found before the first call of `store`.
//
// The names in a file may lack the first part of the requested names ("model." or "transformer."):
// `save_pretrained` writes them so for a model without its head, such as the published GPT-2.
//
// The experts of a layer may be fused, as transformers 5 holds them in memory and as
// `save_pretrained` writes them with save_original_format=False (by default it writes each expert's
// own tensors, which is how exportHuggingFace writes them and how published checkpoints have them):
//
//   LAYER.mlp.experts.gate_up_proj   [experts, 2 * width, hidden], the rows of gate before those of
//   up LAYER.mlp.experts.down_proj      [experts, hidden, width]
//
// In such a file the router of a Mixtral is LAYER.mlp.gate.weight. Each requested tensor
// LAYER.mlp.experts.N.gate_proj.weight or LAYER.block_sparse_moe.experts.N.w1.weight is then filled
// from its part. Another number of experts than the requested one is an Error.
//
// Three kinds of tensors may be in the file without being requested: the inverse frequencies of
// RoPE, the causal mask that GPT-2's layers keep (`attn.bias`, `attn.masked_bias`), and
// `lm_head.weight`, as in a model whose head is tied to the embedding. The function does not check
// that the two are equal, but returns an Error if a config.json beside the file has
// tie_word_embeddings = false.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
