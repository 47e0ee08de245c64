// Measures how fast every two ranks of a node, and every two nodes, exchange data.
//
// The ranks meet like the players of a round-robin tournament. In each round, every rank meets one
// other rank, and all pairs exchange data at the same time. After n - 1 rounds (n rounds if n is
// odd), each rank has met all others. So a thousand nodes need a thousand rounds, not half a
// million.
#pragma once

#include "runtime/comm/World.h"

#include <optional>
#include <vector>

namespace lmc {

// Returns the opponent of `player` (in [0, players)) in `round` (in [0, roundsOf(players))), or
// nullopt if it has none. This is Kirkman's method (1847, "On a problem in combinations"), known as
// the circle method: for even n and m = n - 1, two players i, j < m meet in round (i + j) mod m,
// and the player that would meet itself meets player m.
std::optional<int> opponentOf(int player, int round, int players);
int roundsOf(int players);

struct PairSpeed {
  int a = 0, b = 0;     // ranks; a < b
  double latency = 0;   // seconds of an exchange of 8 bytes
  double bandwidth = 0; // bytes/s in each direction, both at the same time

  // The time of an exchange of 1 MiB, by which ranks are compared. Most messages of training are
  // about as long, so the latency has the same weight as in training.
  double seconds() const { return latency + (1 << 20) / bandwidth; }
};

struct PairSpeeds {
  // In `onNode`, a and b are on one node. In `acrossNodes`, they have the same place on two nodes,
  // whose other ranks exchange data at the same time.
  std::vector<PairSpeed> onNode, acrossNodes;
  uint64_t sent = 0; // bytes sent by the rank that sent the most
};

// All ranks must call it, and get the same result. Ranks k * ranksPerNode to (k + 1) * ranksPerNode
// - 1 are on one node. It takes about `seconds`, and longer only for links of less than about 1
// Mbit/s. Every pair is measured twice if there is time. Pairs that look slow are measured once
// more, while only their nodes exchange data. The fastest measurement counts, because a busy
// machine delays some.
Result<PairSpeeds> measurePairs(World &world, int ranksPerNode, double seconds);

} // namespace lmc
