// Measures how fast the ranks of a group, every two ranks of a node, and every two nodes exchange
// data. Finds slow pairs.
//
// Pairs meet like the players of a round-robin tournament: in each round, all pairs exchange data
// at the same time. After n - 1 rounds (n if n is odd), each rank has met all others. A thousand
// nodes need a thousand rounds, not half a million.
#pragma once

#include "runtime/comm/World.h"

#include <functional>
#include <optional>
#include <vector>

namespace lmc {

// Returns the time of the steady clock in seconds.
double steadySeconds();

// An all-gather over n ranks, after which each rank has B bytes, takes about
// latency + (n - 1) / n * B / bandwidth seconds.
struct GroupSpeed {
  double latency = 0;   // seconds
  double bandwidth = 0; // bytes/s
  uint64_t sent = 0;    // bytes that a rank sent for this measurement
};

// Measures a group of at least two ranks. All of them must call it, and get the same result. Runs
// all-gathers with results of about 64 KiB, 256 KiB, ... up to 64 MiB. The bandwidth is that of the
// largest all-gather that takes less than about `seconds`, or of the smallest if even that takes
// longer. `now` returns the time in seconds.
Result<GroupSpeed> measureGroup(Communicator &group, double seconds,
                                const std::function<double()> &now = steadySeconds);

// Returns the opponent of `player` (from 0) in `round` (from 0); nullopt if there is none. Uses the
// circle method (Kirkman 1847, "On a problem in combinations"). With m = roundsOf(players), players
// i, j < m meet in round (i + j) mod m. If 2 i mod m is the round, player i meets player m.
std::optional<int> opponentOf(int player, int round, int players);
int roundsOf(int players);

struct PairSpeed {
  int a = 0, b = 0;     // ranks; a < b
  double latency = 0;   // seconds of an exchange of 8 bytes
  double bandwidth = 0; // bytes/s in each direction, both at the same time

  // Returns the seconds of an exchange of 1 MiB, about the size of most messages in training.
  double seconds() const { return latency + (1 << 20) / bandwidth; }
};

struct PairSpeeds {
  // `onNode`: a and b are on one node. `acrossNodes`: they have the same position on two nodes.
  std::vector<PairSpeed> onNode, acrossNodes;
  uint64_t sent = 0; // bytes sent by the rank that sent the most
};

// Each node has `ranksPerNode` consecutive ranks. All ranks must call it, and get the same result.
// It takes about `seconds`, or longer for links of less than 1 Mbit/s. Each pair is measured twice
// if there is time. A pair that looks slow is measured again, with less other traffic. The fastest
// measurement counts, because a busy machine delays some.
Result<PairSpeeds> measurePairs(World &world, int ranksPerNode, double seconds);

// A rank, a pair or a group is slow if its exchange takes at least kSlow times the median of all
// ranks, pairs or groups. Collectives wait for the slowest link, so a link of half the speed can
// double the time of a step.
constexpr double kSlow = 2;

struct SlowLink {
  // If `to` is not empty, links between ranks `from` of one node and ranks `to` of the same node or
  // of a second node are slow. If `to` is empty, slowLinks() found that all links of each rank in
  // `from` are slow, or a measurement of groups found that collectives of the group `from` are.
  std::vector<int> from, to;
  double seconds = 0; // time of the slowest of these links (PairSpeed::seconds())
  double usual = 0;   // time to compare with: a median, or the time that the plan assumed
};

// Returns the slow ranks and pairs. Either each pair must be on one node, or each pair must be on
// two nodes. A rank's time is that of its fastest pair, so one slow link does not make two ranks
// slow. A rank in only one pair is not judged. Ranks are compared with the median of judged ranks,
// and pairs without a slow rank with the median of these pairs. One SlowLink contains all slow
// ranks of a node, or all slow pairs of the same one or two nodes.
std::vector<SlowLink> slowLinks(const std::vector<PairSpeed> &pairs, int ranksPerNode);

} // namespace lmc
