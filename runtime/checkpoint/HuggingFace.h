// Hugging Face checkpoints, which `from_pretrained` reads and `save_pretrained` writes. A
// checkpoint is a folder with config.json and model.safetensors, or with config.json, several
// .safetensors files and model.safetensors.index.json.
#pragma once

#include "runtime/checkpoint/Checkpoint.h"

namespace lmc {

struct ExportOptions {
  std::optional<plan::DType> dtype; // a float type for all tensors; nullopt: each keeps its dtype
  // The maximum number of bytes of all tensors in one file. A larger tensor gets a file of its own.
  uint64_t maximumShardBytes = 5'000'000'000;
  // The ids of the tokens that begin and end a document; nullopt: as in config.json.
  std::optional<uint32_t> bosTokenId, eosTokenId;
  // Rows of zeros increase the vocabulary size to a multiple of vocabMultiple; 1: no padding.
  uint64_t vocabMultiple = 1;
  std::vector<std::string> files; // files that are copied to the folder, such as a tokenizer's
};

// Writes the folder `directory`: config.json, generation_config.json, the copied files and the
// tensors. If the tensors exceed one file's limit, they get several files, as in `save_pretrained`.
// Values are rounded to nearest even. Only one tensor is in host memory at a time.
//
// `configJson` becomes config.json, with the dtype and the token ids in `options`. If it has
// tie_word_embeddings = true, `lm_head.weight` is left out.
//
// An earlier export in `directory` is replaced. Error: `directory` has files that no export writes.
Result<void> exportHuggingFace(const std::string &directory, const std::string &configJson,
                               const std::vector<TensorView> &tensors, const FetchTensor &fetch,
                               const ExportOptions &options = {});

// Returns the paths of a tokenizer's files. `path` is one of these files, or their folder.
Result<std::vector<std::string>> tokenizerFiles(const std::string &path);

// Fills every tensor, by name, from `path`: a folder as exportHuggingFace() writes it, or a single
// .safetensors file. Floats are converted to the requested dtype, rounded to nearest even. Error,
// found before the first call of `store`: a tensor is missing, unexpected or of another shape.
//
// The names in `tensors` may begin with "model." or "transformer." where the names in the file do
// not, as in the published GPT-2.
//
// A layer's experts may be fused, as transformers 5 writes them with save_original_format=False:
//
//   LAYER.mlp.experts.gate_up_proj   [experts, 2 * width, hidden]: rows of gate, then of up
//   LAYER.mlp.experts.down_proj      [experts, hidden, width]
//
// In such a file the router of a Mixtral is LAYER.mlp.gate.weight. Error: the number of experts in
// the file differs from that in `tensors`.
//
// A file may also have RoPE's inverse frequencies, GPT-2's causal masks (`attn.bias`,
// `attn.masked_bias`) and `lm_head.weight` of a model whose head is tied to the embedding. Error:
// the head is tied, but a config.json beside the file has tie_word_embeddings = false.
Result<void> importHuggingFace(const std::string &path, const std::vector<TensorView> &tensors,
                               const StoreTensor &store);

} // namespace lmc
