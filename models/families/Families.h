// The model families that a job can name, one per file.
#pragma once

#include "compiler/config/ModelFamily.h"

namespace lmc {

// The list for loadConfig; the first is the default of `model.architecture`.
const ModelFamilies &modelFamilies();

} // namespace lmc
