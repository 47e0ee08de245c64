// What one block (a transformer layer) keeps of its forward pass.
//
// The forward pass of a block is a DAG of ops; each makes values of known bytes.
// The backward pass needs some of the values. A value is either kept from the
// forward pass, which costs its bytes until the block's backward pass, or made
// again, which costs running its op again with everything that op reads being at
// hand in the same way. Inputs of the block are always at hand.
//
// For a price per byte the cheapest choice is a minimum cut: op u is run again
// (in the source's side) or not; value v is wanted or not; cutting v -> op(v)
// pays for v's bytes and u -> sink for u's seconds. All prices together give the
// lower convex hull of (kept bytes, seconds), which is found by asking for the
// price at which two known neighbours break even until nothing new appears.
// Seconds count in whole femtoseconds (Femtoseconds.h), so ties are exact.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lmc {

struct BlockRecomputeProblem {
  struct Value {
    uint64_t bytes = 0;
    int op = -1; // that makes it; -1: an input of the block
  };
  struct Op {
    std::vector<int> reads; // values
    double seconds = 0;     // to run it again
    bool allowed = true;    // false: never run again (collectives, random draws)
  };
  std::vector<Op> ops; // every op reads inputs and results of ops before it
  std::vector<Value> values;
  std::vector<int> needed; // values that the backward pass reads, without duplicates

  // Empty when the problem is well formed, else what is wrong with it. All values
  // together have less than 2^56 bytes, all ops take an hour at most.
  std::string check() const;
};

struct BlockRecomputeOption {
  std::vector<int> kept;       // values, ascending; no inputs of the block
  std::vector<int> recomputed; // ops, ascending
  uint64_t keptBytes = 0;
  double seconds = 0;

  // Empty when every needed value is kept, recomputed or an input, every recomputed op has
  // all it reads, nothing is kept or run again that nobody reads, nothing is both, and the
  // sums are right; else the fault.
  std::string verify(const BlockRecomputeProblem &problem) const;
};

// The options at the corners of the lower convex hull, most bytes (fewest seconds) first;
// bytes fall and seconds rise strictly. The first recomputes only what costs nothing and is
// the smallest of these; the last keeps the fewest bytes that are possible, in the least
// time for them. Of options of equal bytes and seconds it is one that recomputes no op in
// vain; each option recomputes all that the one before it does.
std::vector<BlockRecomputeOption> blockRecomputeOptions(const BlockRecomputeProblem &problem);

} // namespace lmc
