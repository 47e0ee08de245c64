// Hugging Face's config.json as a source of [model].
#pragma once

#include "compiler/config/ModelFamily.h"
#include "compiler/config/Parse.h"

namespace lmc::config {

// Reads `path`, of one of the table's families, into assignments of [model] keys. Keys that the
// file leaves out take the defaults of the family's class of transformers. Keys without bearing on
// training are ignored; those that lmc cannot honour are errors.
std::vector<Assignment> importHuggingFaceConfig(const std::string &path, const KeyTable &keys,
                                                Diagnostics &diagnostics);

// How checkpoints of the model are exported.
Export exportOf(const ModelConfig &model);

} // namespace lmc::config
