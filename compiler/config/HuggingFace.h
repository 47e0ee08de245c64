// Hugging Face's config.json as a source of [model].
#pragma once

#include "compiler/config/ModelFamily.h"
#include "compiler/config/Parse.h"

namespace lmc::config {

// Converts the file `path`, the config.json of a family of the table, to assignments of [model]
// keys. A missing key gets the default of the family's class of transformers. Keys that do not
// affect training are ignored; keys that lmc cannot support are errors.
std::vector<Assignment> importHuggingFaceConfig(const std::string &path, const KeyTable &keys,
                                                Diagnostics &diagnostics);

// How checkpoints of the model are exported.
Export exportOf(const ModelConfig &model);

} // namespace lmc::config
