// Finds the ranks and links that are slower than others of their kind.
#pragma once

#include "tools/lmc-run/check/MeasurePairs.h"

#include <vector>

namespace lmc {

// A rank, a pair or a group is slow if an exchange takes this many times the median of its kind.
// The value is a choice: collectives wait for the slowest link, so that a link of half the speed
// can double the time of a step; smaller differences are usual in shared networks.
constexpr double kSlow = 2;

struct SlowLink {
  // The ranks at both ends, each on one node. If `from` are slow with all others, `to` is empty.
  std::vector<int> from, to;
  double seconds = 0; // time of the slowest of them (PairSpeed::seconds())
  double usual = 0;   // median time of the others, for comparison
};

// `pairs` are of one kind: on nodes, or across nodes. The time of a rank is that of its fastest
// pair, so that a slow link does not make both of its ends look slow; ranks in only one pair are
// not judged. Ranks are compared with the median rank, and then pairs of ranks that are not slow
// with the median of these pairs. Ranks of one node, and pairs of the same two nodes, are one
// SlowLink.
std::vector<SlowLink> slowLinks(const std::vector<PairSpeed> &pairs, int ranksPerNode);

} // namespace lmc
