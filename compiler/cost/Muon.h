// Predicts the time that ranks need to orthogonalize matrices (lm.orthogonalize).
#pragma once

#include "compiler/cost/CostModel.h"

namespace lmc::cost {

// Matrices of one shape, which a group of ranks divide between them.
struct MuonWork {
  int64_t rows = 0, columns = 0;
  int64_t matrices = 1;
  int64_t steps = 5; // steps of the Newton-Schulz iteration
  DataType dtype = DataType::BF16;
};

// Returns the seconds in which one rank orthogonalizes all matrices, if they lie in one stack.
double orthogonalizeSeconds(const MuonWork &work, const CostModel &model);

// Returns the seconds in which one rank copies all matrices to a stack and orthogonalizes them.
double stackedSeconds(const MuonWork &work, const CostModel &model);

// Returns the seconds in which each rank of `group` orthogonalizes its share of the matrices,
// rounded up to whole matrices, and gathers the results of the other ranks.
double ownersSeconds(const MuonWork &work, const Group &group, const CostModel &model);

} // namespace lmc::cost
