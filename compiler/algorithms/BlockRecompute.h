// Chooses which values of the forward pass one block (a transformer layer) keeps.
//
// The forward pass of a block is a DAG of ops; each op computes values of known bytes. A value that
// the backward pass needs is either kept or recomputed. A kept value costs its bytes until the
// block's backward pass. A recomputed value costs the seconds of its op, and every value that this
// op reads must be kept, recomputed or an input of the block.
//
// With a price for a byte and a price for a second, the cheapest choice is a minimum cut of a flow
// network. The source's side of the cut has the recomputed ops, the values that these ops read, and
// the values that the backward pass reads. An arc from a value to the op that computes it costs the
// value's bytes. An arc from an op to the sink costs the op's seconds. The cheapest choices for all
// prices are the corners of the lower convex hull of (kept bytes, seconds). For two known corners,
// the search finds the cheapest choice at prices at which both cost the same. If it is cheaper than
// both, it is a new corner. Whole femtoseconds (Femtoseconds.h) make equal costs compare as equal.
#pragma once

#include "ground/support/Result.h"

#include <cstdint>
#include <vector>

namespace lmc {

struct BlockRecomputeProblem {
  struct Value {
    uint64_t bytes = 0;
    int op = -1; // index of the op that computes the value; -1: an input of the block
  };
  struct Op {
    std::vector<int> reads; // indices of values
    double seconds = 0;     // time to recompute the op
    bool allowed = true;    // false: the op must not be recomputed (collectives, random draws)
  };
  std::vector<Op> ops; // in execution order: an op reads inputs of the block and earlier results
  std::vector<Value> values;
  std::vector<int> needed; // values that the backward pass reads, without duplicates

  // Returns an error if the problem is not well formed. All values together must have less than
  // 2^56 bytes, and all ops together must take at most an hour.
  Result<void> check() const;
};

struct BlockRecomputeOption {
  std::vector<int> kept;       // ascending indices of the kept values, without inputs of the block
  std::vector<int> recomputed; // indices of ops, ascending
  uint64_t keptBytes = 0;
  double seconds = 0;

  // Returns an error unless
  // * every needed value and every value that a recomputed op reads is kept, recomputed or an
  //   input,
  // * something reads every kept value, and a result of every recomputed op,
  // * no value is both kept and recomputed, and `keptBytes` and `seconds` are the right sums.
  Result<void> verify(const BlockRecomputeProblem &problem) const;
};

// Returns the options at the corners of the lower convex hull of (kept bytes, seconds). From option
// to option, kept bytes fall and seconds rise. The first option takes the fewest seconds, and the
// last option keeps the fewest bytes. Each option recomputes all ops that the previous option
// recomputes. No option recomputes an op whose results are not read.
std::vector<BlockRecomputeOption> blockRecomputeOptions(const BlockRecomputeProblem &problem);

} // namespace lmc
