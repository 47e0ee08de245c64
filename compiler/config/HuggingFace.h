// Hugging Face's config.json as a source of [model].
#pragma once

#include "compiler/config/Parse.h"

namespace lmc::config {

// Which of transformers' classes computes this model; nullptr if none does.
// Mistral is Llama with a sliding window, without biases, and with heads that
// need not divide hidden_size.
const char *huggingFaceClass(const ModelConfig &model);

// Reads `path` (of a llama or mistral) into assignments of [model] keys; absent
// keys take the defaults of transformers' LlamaConfig and MistralConfig. Keys that
// have no bearing on training are ignored; those that lmc cannot honour are errors.
std::vector<Assignment> importHuggingFaceConfig(const std::string &path, Diagnostics &diagnostics);

} // namespace lmc::config
