// The ranks that run a plan together. Each rank has its own World object.
//
// Ranks are numbered node by node. In the mesh that divide() makes, rank r has these positions:
//   axis Shard      i = r % shardRanks     axis Expert        i % expertRanks
//   axis Replicate  r / shardRanks         axis ExpertShard   i / expertRanks
#pragma once

#include "runtime/comm/Communicator.h"
#include "runtime/comm/Progress.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

class World {
public:
  virtual ~World() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // The group of all ranks. Two threads may use two different groups at the same time.
  virtual Communicator &all() = 0;

  // A second group of all ranks. A thread uses it to save while the main thread trains.
  virtual Communicator &background() = 0;

  // Makes the groups along the axes. A node has `ranksPerNode` ranks. `shardRanks` must divide
  // size(), and `expertRanks` must divide `shardRanks`. All ranks must call divide() together. A
  // second call makes the groups of the first call invalid.
  virtual Result<void> divide(int shardRanks, int ranksPerNode, int expertRanks = 1) = 0;

  // Returns this rank's group along an axis, after divide(). If expertRanks is 1, there is no group
  // along ExpertShard.
  virtual Communicator &along(plan::Axis axis) = 0;

  // Sends `bytes` bytes of x to rank `other`, and receives the same number of bytes from that rank
  // in d. x and d must not overlap. Both ranks must call exchange().
  virtual Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) = 0;

  virtual Progress &progress() = 0;

  // On rank 0, returns the latest known progress of all ranks.
  virtual std::vector<Progress::State> progressOfRanks() const { return {}; }

  // Returns the name of a rank's machine; "" if all ranks are threads of one process.
  virtual std::string hostOf(int) const { return ""; }

  // Returns "rank 3 (host b)", "ranks 2, 3 (host b)" or "ranks 1 (host a), 3 (host b)". The ranks
  // must ascend. Hosts without a name are left out.
  std::string namesOf(const std::vector<int> &ranks) const;

  // If a rank has failed or has left the run, returns an Error about that rank.
  virtual std::optional<Error> loss() const { return std::nullopt; }
};

} // namespace lmc
