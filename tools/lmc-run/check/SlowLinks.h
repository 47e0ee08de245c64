// Finds out which ranks and links are slower than others of their kind.
#pragma once

#include "tools/lmc-run/check/MeasurePairs.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

// A rank, a pair or a group is slow if an exchange takes this many times the median of its like. A
// choice: collectives wait for the slowest link, so that half the speed of one link can double the
// time of a step; less than that is within what shared networks vary.
constexpr double kSlow = 2;

struct SlowLink {
  // The ranks at both ends: those of one node each. `to` is empty if `from` are slow with all
  // others.
  std::vector<int> from, to;
  double seconds = 0; // that the slowest of them takes (PairSpeed::seconds())
  double usual = 0;   // what it is compared with: the median of the others' time
};

// `pairs` are of one kind: on nodes, or across nodes. The time of a rank is that of its fastest
// pair, so that a slow link does not make both of its ends look slow; ranks in only one pair are
// not judged. Ranks are compared with the median rank, and then pairs of ranks that are not slow
// with the median of these pairs. Ranks of one node, and pairs of the same two nodes, are one
// SlowLink.
std::vector<SlowLink> slowLinks(const std::vector<PairSpeed> &pairs, int ranksPerNode);

} // namespace lmc
