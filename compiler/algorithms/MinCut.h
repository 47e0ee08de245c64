// Minimum cuts by maximum flow (Dinic 1970), on integers.
//
// Capacities have 128 bits because one cut adds costs of two kinds: bytes multiplied by a
// difference of durations (femtoseconds), and durations multiplied by a difference of bytes. Both
// are products of a 56-bit and a 62-bit number and fit, so that ties between cuts are decided
// exactly and never by rounding.
#pragma once

#include <optional>
#include <string>
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
  std::vector<Arc> arcs; // parallel arcs and loops are allowed

  // Returns an empty string when the problem is well formed, else what is wrong with it. All
  // capacities other than kUncuttable must sum to less than 2^124.
  std::string check() const;
};

struct MinCut {
  std::vector<bool> sourceSide;  // per node
  std::vector<CutCapacity> flow; // per arc, a maximum flow
  CutCapacity capacity = 0;      // of the arcs from the source's side to the sink's

  // Returns an empty string when `flow` is one (within capacities and conserved at nodes), the
  // sides separate source and sink, and both the cut's capacity and the flow's value are
  // `capacity`; otherwise returns the fault. A flow and a cut of equal value prove each other
  // optimal.
  std::string verify(const MinCutProblem &problem) const;
};

// Returns the minimum cut whose source side is contained in that of every other minimum cut;
// nothing when arcs of kUncuttable connect source and sink.
std::optional<MinCut> minCut(const MinCutProblem &problem);

} // namespace lmc
