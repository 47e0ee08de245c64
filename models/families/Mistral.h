// Mistral, for families that its class of transformers computes in part.
#pragma once

#include "compiler/config/ModelFamily.h"

namespace lmc {

const ModelFamily &mistral();

// Reports biases in a model that, for the `reason`, only Mistral's class of transformers could
// compute, which has none.
void refuseBiases(const config::CheckedJob &job, const char *reason);

} // namespace lmc
