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
  // The ids that begin and end a document; nullopt: the ids in config.json.
  std::optional<uint32_t> bosTokenId, eosTokenId;
  // Rows of zeros pad the embedding and the head to a multiple of this number of rows; vocab_size
  // includes them. 1: no padding.
  uint64_t vocabMultiple = 1;
  std::vector<std::string> files; // files that are copied to the folder, such as a tokenizer's
};

// Writes the folder `directory`: config.json, generation_config.json, the tensors and the copied
// files. The tensors are in model.safetensors or, if they are larger than the limit, in files
// model-00001-of-0000N.safetensors with model.safetensors.index.json, divided as `save_pretrained`
// divides them: in the given order, each file as full as the limit allows. Values are rounded to
// nearest even. Only one tensor is in host memory at a time.
//
// `configJson` becomes config.json, with the dtype and the ids of `options`. If it has
// tie_word_embeddings = true, `lm_head.weight` is left out.
//
// The folder is written under a temporary name and then renamed. An earlier export in `directory`
// is replaced. If `directory` has a file that no export writes, the result is an Error, because
// replacing the folder would lose the file.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                               const ExportOptions &options = {});

// Returns the paths of a tokenizer's files. `path` is a file ("tokenizer.json") or the files'
// folder. Error: no file there has a name that transformers gives to tokenizer files.
Result<std::vector<std::string>> tokenizerFiles(const std::string &path);

// Fills every tensor, by name, from `path`: a folder like those of exportHuggingFace, or a single
// .safetensors file. f32, bf16, f16 and f64 are converted to the requested dtype, rounded once to
// nearest even if it cannot hold the value. A tensor that is missing, not requested or of another
// shape is an Error, which is found before the first call of `store`.
//
// The names in a file may lack the first part of the requested names ("model." or "transformer."),
// as `save_pretrained` writes them for a model without its head, such as the published GPT-2.
//
// The experts of a layer may be fused, as transformers 5 holds them in memory and as
// `save_pretrained` writes them with save_original_format=False. By default it writes tensors per
// expert, as exportHuggingFace does and published checkpoints have:
//
//   LAYER.mlp.experts.gate_up_proj   [experts, 2 * width, hidden]: rows of gate, then of up
//   LAYER.mlp.experts.down_proj      [experts, hidden, width]
//
// In such a file the router of a Mixtral is LAYER.mlp.gate.weight. Each requested tensor
// LAYER.mlp.experts.N.gate_proj.weight or LAYER.block_sparse_moe.experts.N.w1.weight is then filled
// from its part. Another number of experts than the requested one is an Error.
//
// Three kinds of tensors may be in the file without being requested: the inverse frequencies of
// RoPE, the causal mask that GPT-2's layers keep (`attn.bias`, `attn.masked_bias`), and
// `lm_head.weight`, as in a model whose head is tied to the embedding. Head and embedding are not
// compared, but it is an Error if a config.json beside the file has tie_word_embeddings = false.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
