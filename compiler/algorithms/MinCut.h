// Minimum cuts by maximum flow (Dinic 1970), on integers.
//
// Capacities are 128 bits wide because costs of two kinds meet in one cut: bytes
// weighted with a difference of durations (femtoseconds), and durations weighted with a
// difference of bytes. Both products of a 56-bit and a 62-bit number fit, so that
// whether two cuts cost the same is decided exactly and never by rounding.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lmc {

using CutCapacity = __int128;

// Of an arc that no cut may cross.
constexpr CutCapacity kUncuttable = CutCapacity(1) << 126;

struct MinCutProblem {
  struct Arc {
    int from, to;
    CutCapacity capacity; // kUncuttable, or from 0 on
  };
  int nodes = 2;
  int source = 0, sink = 1;
  std::vector<Arc> arcs; // parallel arcs and loops are allowed

  // Empty when the problem is well formed, else what is wrong with it. All capacities
  // but kUncuttable have to sum to less than 2^124.
  std::string check() const;
};

struct MinCut {
  std::vector<bool> sourceSide;  // per node
  std::vector<CutCapacity> flow; // per arc, a maximum flow
  CutCapacity capacity = 0;      // of the arcs from the source's side to the sink's

  // Empty when the flow is one (within capacities, conserved), the sides part source and
  // sink, and the cut's capacity and the flow's value are both `capacity`, which proves
  // both to be optimal; else the fault.
  std::string verify(const MinCutProblem &problem) const;
};

// The minimum cut whose source side is contained in that of every other; none when
// arcs that may not be cut join source and sink.
std::optional<MinCut> minCut(const MinCutProblem &problem);

} // namespace lmc
