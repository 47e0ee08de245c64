// The ranks that run a plan together, seen from one of them.
//
// Ranks are numbered node by node. Once they are divided, rank r has the position r % shardRanks
// along the mesh's axis Shard, and r / shardRanks along the axis Replicate. The rank with position
// i along Shard has i % expertRanks along the axis Expert, and i / expertRanks along ExpertShard.
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

  // The group of all ranks, by which the hosts agree. This group and the groups of the axes may be
  // used at the same time, each by a thread of its own.
  virtual Communicator &all() = 0;

  // A second group of all ranks, for a thread that writes during steps. May be used at the same
  // time as the other groups.
  virtual Communicator &background() = 0;

  // Makes the groups of the axes, for nodes that have `ranksPerNode` ranks each. All ranks call it
  // together; `shardRanks` divides size(), and `expertRanks` divides it. Groups that were made
  // before must not be used any more.
  virtual Result<void> divide(int shardRanks, int ranksPerNode, int expertRanks = 1) = 0;

  // Returns the group along an axis to which this rank belongs, after divide(). With one expert
  // rank there is no group along ExpertShard.
  virtual Communicator &along(plan::Axis axis) = 0;

  // Sends `bytes` bytes of x to the rank `other`, and receives as many from it in d, which does not
  // overlap x. Both ranks call it.
  virtual Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) = 0;

  // Returns the record of this rank's progress.
  virtual Progress &progress() = 0;

  // On rank 0, returns the latest progress of all ranks; returns nothing on other ranks, or if it
  // is not known.
  virtual std::vector<Progress::State> progressOfRanks() const { return {}; }

  // Returns the name of the machine of a rank; "" if all ranks are threads of one process.
  virtual std::string hostOf(int) const { return ""; }

  // Returns "rank 3 (host b)", "ranks 2, 3 (host b)" or "ranks 1 (host a), 3 (host b)" for ranks in
  // ascending order; without the parentheses if hosts have no names.
  std::string namesOf(const std::vector<int> &ranks) const;

  // Returns why a rank is missing, if that is known: it has failed, or has left at its end.
  virtual std::optional<Error> loss() const { return std::nullopt; }
};

} // namespace lmc
