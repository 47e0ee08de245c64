// Finds the ranks and links that are slower than others of their kind.
#pragma once

#include "tools/lmc-run/check/MeasurePairs.h"

#include <vector>

namespace lmc {

// A rank, a pair or a group is slow if its exchange takes at least kSlow times the median of its
// kind. Collectives wait for the slowest link, so a link of half the speed can double the time of a
// step.
constexpr double kSlow = 2;

struct SlowLink {
  // The slow ranks at each end, all on one node. `to` is empty if `from` are slow with all others.
  std::vector<int> from, to;
  double seconds = 0; // time of the slowest of them (PairSpeed::seconds())
  double usual = 0;   // median time of the others, for comparison
};

// Returns the slow ranks and links of `pairs`, all within nodes or all across nodes. Ranks are
// compared with the median rank; then pairs without a slow rank with the median of such pairs. The
// time of a rank is that of its fastest pair, so that a slow link does not make both of its ends
// look slow. Ranks of one node, and pairs of the same two nodes, are one SlowLink.
std::vector<SlowLink> slowLinks(const std::vector<PairSpeed> &pairs, int ranksPerNode);

} // namespace lmc
