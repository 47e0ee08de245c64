// Measures how fast every two ranks of a node, and every two nodes, exchange data.
//
// The ranks meet like the players of a round-robin tournament: in each round every rank meets
// another one, all pairs of a round exchange data at the same time, and after n - 1 rounds (n
// rounds if n is odd) each rank has met all others. So a thousand nodes need a thousand rounds, not
// half a million.
#pragma once

#include "runtime/comm/World.h"

#include <optional>
#include <vector>

namespace lmc {

// Returns the opponent of `player` of 0 ... players - 1 in a round; nullopt: none. The rounds are 0
// ... roundsOf(players) - 1. This is Kirkman's method (1847, "On a problem in combinations"), known
// as the circle method: for even n and m = n - 1, two players i, j < m meet in round (i + j) mod m,
// and the one that would meet itself meets player m.
std::optional<int> opponentOf(int player, int round, int players);
int roundsOf(int players);

struct PairSpeed {
  int a = 0, b = 0;     // ranks; a < b
  double latency = 0;   // seconds of an exchange of 8 bytes
  double bandwidth = 0; // bytes/s in each direction, both at the same time

  // The time of an exchange of 1 MiB. Ranks are compared by it, because it counts the latency as
  // much as training does: most messages of training are about as long.
  double seconds() const { return latency + (1 << 20) / bandwidth; }
};

struct PairSpeeds {
  // In onNode, a and b are on one node. In acrossNodes they have the same place on different nodes,
  // and the other ranks of the two nodes exchange data at the same time.
  std::vector<PairSpeed> onNode, acrossNodes;
  uint64_t sent = 0; // bytes sent by the rank that sent the most
};

// All ranks call it, and get the same result. Each `ranksPerNode` consecutive ranks are on one
// node. It takes about `seconds`; only links of less than some 1 Mbit/s make it longer. Every pair
// is measured twice if there is time, and pairs that look slow once more, while only their nodes
// exchange data. The fastest measurement counts, so that one delay by a busy machine does not make
// a link look slow.
Result<PairSpeeds> measurePairs(World &world, int ranksPerNode, double seconds);

} // namespace lmc
