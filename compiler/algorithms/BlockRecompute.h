// The choice of what one block (a transformer layer) keeps of its forward pass.
//
// The forward pass of a block is a DAG of ops; each op makes values of known bytes. The backward
// pass needs some of the values. A value is either kept from the forward pass, which costs its
// bytes until the block's backward pass, or recomputed, which costs the seconds of its op and
// requires that every value the op reads is an input of the block, kept or recomputed. Inputs of
// the block are always present.
//
// For a given price per byte the cheapest choice is a minimum cut. Op u is on the source's side if
// it is recomputed; value v is on the source's side if it is wanted. Cutting the arc from value v
// to its op pays for v's bytes; cutting the arc from op u to the sink pays for u's seconds. All
// prices together give the lower convex hull of (kept bytes, seconds). To find it, each two known
// neighbours are tested at the price at which they cost the same, until no new corner appears.
// Seconds count in whole femtoseconds (Femtoseconds.h), so ties are exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct BlockRecomputeProblem {
  struct Value {
    uint64_t bytes = 0;
    int op = -1; // the op that makes it; -1: an input of the block
  };
  struct Op {
    std::vector<int> reads; // values
    double seconds = 0;     // to recompute it
    bool allowed = true;    // false: never recomputed (collectives, random draws)
  };
  std::vector<Op> ops; // every op reads inputs and results of ops before it
  std::vector<Value> values;
  std::vector<int> needed; // values that the backward pass reads, without duplicates

  // Returns an empty string when the problem is well formed, else what is wrong with it. All values
  // together must have less than 2^56 bytes, and all ops together must take at most an hour.
  std::string check() const;
};

struct BlockRecomputeOption {
  std::vector<int> kept;       // values, ascending; no inputs of the block
  std::vector<int> recomputed; // ops, ascending
  uint64_t keptBytes = 0;
  double seconds = 0;

  // Returns an empty string when
  // * every needed value is kept, recomputed or an input of the block,
  // * every recomputed op has all that it reads,
  // * no kept value and no recomputed op goes unread,
  // * no value is both kept and recomputed, and the sums are right;
  //
  // otherwise returns the fault.
  std::string verify(const BlockRecomputeProblem &problem) const;
};

// Returns the options at the corners of the lower convex hull: along the list bytes fall and
// seconds rise strictly. The first option recomputes only ops that cost nothing and keeps the
// fewest bytes that are possible so. The last option keeps the fewest bytes that are possible at
// all, in the least time for them. Each option recomputes every op that the one before it does.
// Where several options have equal bytes and seconds, the returned one recomputes no op whose
// results are not read.
std::vector<BlockRecomputeOption> blockRecomputeOptions(const BlockRecomputeProblem &problem);

} // namespace lmc
