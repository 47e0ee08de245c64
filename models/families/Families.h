// Lists the model families that a job can name. Each family has a file in this folder.
#pragma once

#include "ground/config/ModelFamily.h"

namespace lmc {

// Returns the families for loadConfig(). The first family is the default of `model.architecture`.
const ModelFamilies &modelFamilies();

} // namespace lmc
