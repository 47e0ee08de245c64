// Finds minimum cuts of a flow network by maximum flow (Dinic 1970).
//
// Capacities are integers, so rounding never decides which of two cuts is smaller. They have 128
// bits, because BlockRecompute.cpp multiplies bytes (56 bits) by femtoseconds (62 bits).
#pragma once

#include "ground/support/Result.h"

#include <optional>
#include <vector>

namespace lmc {

using CutCapacity = __int128;

// The capacity of an arc that no cut may cross.
constexpr CutCapacity kUncuttable = CutCapacity(1) << 126;

struct MinCutProblem {
  struct Arc {
    int from, to;
    CutCapacity capacity; // kUncuttable, or at least 0
  };
  int nodes = 2;
  int source = 0, sink = 1;
  std::vector<Arc> arcs; // parallel arcs, and arcs from a node to itself, are allowed

  // Returns an error if the problem is not well formed. All capacities other than kUncuttable must
  // sum to less than 2^124.
  Result<void> check() const;
};

struct MinCut {
  std::vector<bool> sourceSide;  // per node: true if the node is on the source's side
  std::vector<CutCapacity> flow; // per arc: the arc's flow in a maximum flow
  CutCapacity capacity = 0;      // sum over the arcs from the source's side to the sink's side

  // Returns an error unless flow and cut are valid, and the flow's amount and the cut's capacity
  // are both `capacity`. A flow and a cut of equal value prove that both are optimal.
  Result<void> verify(const MinCutProblem &problem) const;
};

// Returns the minimum cut with the smallest source side: it is a subset of every minimum cut's
// source side. Returns nothing if a path of kUncuttable arcs leads from source to sink.
std::optional<MinCut> minCut(const MinCutProblem &problem);

} // namespace lmc
