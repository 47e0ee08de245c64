// Measures how fast the ranks of a group reach each other.
#pragma once

#include "runtime/comm/Communicator.h"

#include <vector>

namespace lmc {

struct GroupSpeed {
  // An allGather of so many bytes from each rank, until its last rank has all: the median time.
  struct AllGather {
    uint64_t bytes;
    double seconds;
  };
  std::vector<AllGather> allGathers; // of 8 bytes first, then larger ones

  // By position: the median time in which one of the others has sent this rank a megabyte, or has
  // received one from it. A slow host or link stands out.
  std::vector<double> secondsOfRank;

  double latency() const { return allGathers.front().seconds; }
  // Bytes that each rank receives in a second, in the largest allGather.
  double bandwidth() const;
  // Positions of ranks that take at least twice the time of the median rank.
  std::vector<int> slowRanks() const;
};

// All ranks of the group call it, and get the same result. It takes a few seconds on a link of
// 1 Gbit/s. The group has at least two ranks.
Result<GroupSpeed> measureGroup(Communicator &group);

} // namespace lmc
