// Reads Hugging Face's config.json as a source of [model] keys.
#pragma once

#include "ground/config/ModelFamily.h"
#include "ground/config/Parse.h"

namespace lmc::config {

// Converts the config.json `path` to assignments of [model] keys. A key that the file leaves out
// gets the default of the Hugging Face class. Keys that do not affect training are ignored. Keys
// that lmc cannot support are errors.
std::vector<Assignment> importHuggingFaceConfig(const std::string &path, const KeyTable &keys,
                                                Diagnostics &diagnostics);

// Returns the family for whose Hugging Face class the model is exported, and the reason for it.
Export exportOf(const ModelConfig &model);

} // namespace lmc::config
