// The model families that a job can name, a file each.
#pragma once

#include "compiler/config/ModelFamily.h"

namespace lmc {

// What loadConfig takes; the first is the default of `model.architecture`.
const ModelFamilies &modelFamilies();

} // namespace lmc
