// In each collective, a rank publishes the address of its tensor and waits at a barrier. Then it
// computes its part of the result from all ranks' tensors. A second barrier ends the collective.
#include "runtime/comm/LocalWorld.h"

#include "ground/plan/PlanFile.h"
#include "runtime/comm/NodeCommunicator.h"
#include "runtime/comm/RankOrderSum.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>

namespace lmc {

using plan::Axis;
using plan::DType;

namespace {

// The state that the ranks of a group share.
class Group {
public:
  explicit Group(std::vector<int> ranks) : ranks(std::move(ranks)), shown(this->ranks.size()) {}

  // Returns when all ranks of the group have called it.
  Result<void> wait() {
    std::unique_lock lock(mutex);
    const uint64_t round = rounds;
    if (++waiting == ranks.size()) {
      waiting = 0;
      ++rounds;
      changed.notify_all();
      return {};
    }
    changed.wait(lock, [&] { return rounds != round || left >= 0; });
    if (rounds != round)
      return {};
    return Error{fmt::format("rank {} has ended", left), ExitCode::RankFailed};
  }

  void leave(int rank) {
    {
      std::lock_guard lock(mutex);
      if (left < 0)
        left = rank;
    }
    changed.notify_all();
  }

  const std::vector<int> ranks;
  std::vector<void *> shown; // the tensor of each rank, indexed by position

private:
  std::mutex mutex;
  std::condition_variable changed;
  size_t waiting = 0;
  uint64_t rounds = 0;
  int left = -1; // the first rank that has left; -1: none
};

class LocalCommunicator final : public Communicator {
public:
  LocalCommunicator(std::shared_ptr<Group> group, int rank)
      : group(std::move(group)), here(static_cast<int>(std::ranges::find(this->group->ranks, rank) -
                                                       this->group->ranks.begin())) {}

  int position() const override { return here; }
  int size() const override { return static_cast<int>(group->ranks.size()); }

  Result<void> allGather(const void *x, void *d, uint64_t bytes) override {
    return together(const_cast<void *>(x), [&] {
      for (int i = 0; i < size(); ++i)
        if (char *to = static_cast<char *>(d) + static_cast<uint64_t>(i) * bytes; to != at(i))
          std::memcpy(to, at(i), bytes);
    });
  }

  Result<void> reduceScatter(const void *x, void *d, uint64_t elements, DType dtype) override {
    return together(const_cast<void *>(x),
                    [&] { sum(static_cast<uint64_t>(here) * elements, elements, dtype, d); });
  }

  // Each rank computes a part of the sum, and writes it to the tensors of all ranks.
  Result<void> allReduce(void *d, uint64_t elements, DType dtype) override {
    const uint64_t n = static_cast<uint64_t>(size()), i = static_cast<uint64_t>(here);
    const uint64_t first = elements * i / n, count = elements * (i + 1) / n - first;
    return together(d, [&] {
      const uint64_t width = byteWidth(dtype);
      void *own = static_cast<char *>(d) + first * width;
      sum(first, count, dtype, own);
      for (int other = 0; other < size(); ++other)
        if (other != here)
          std::memcpy(static_cast<char *>(at(other)) + first * width, own, count * width);
    });
  }

  Result<void> broadcast(void *data, uint64_t bytes, int root) override {
    return together(data, [&] {
      if (here != root)
        std::memcpy(data, at(root), bytes);
    });
  }

  Result<void> barrier() override { return group->wait(); }

  // Does World::exchange(). The group must have two ranks.
  Result<void> exchange(const void *x, void *d, uint64_t bytes) {
    return together(const_cast<void *>(x), [&] { std::memcpy(d, at(1 - here), bytes); });
  }

private:
  void *at(int position) const { return group->shown[static_cast<size_t>(position)]; }

  void sum(uint64_t first, uint64_t count, DType dtype, void *d) const {
    std::vector<const void *> xs;
    for (int i = 0; i < size(); ++i)
      xs.push_back(static_cast<const char *>(at(i)) + first * byteWidth(dtype));
    sumInRankOrder(xs.data(), size(), count, dtype, d);
  }

  template <typename Compute> Result<void> together(void *tensor, Compute compute) {
    group->shown[static_cast<size_t>(here)] = tensor;
    LMC_TRY(group->wait());
    compute();
    return group->wait();
  }

  const std::shared_ptr<Group> group;
  const int here;
};

// All groups of ranks, by name.
class Groups {
public:
  explicit Groups(int ranks) : ranks(ranks), gone(static_cast<size_t>(ranks)) {}

  // Returns the group with this name, which the first call makes.
  std::shared_ptr<Group> get(const std::string &name, const std::vector<int> &members) {
    std::lock_guard lock(mutex);
    std::shared_ptr<Group> &group = groups[name];
    if (!group) {
      group = std::make_shared<Group>(members);
      for (int rank : members)
        if (gone[static_cast<size_t>(rank)])
          group->leave(rank);
    }
    return group;
  }

  void leave(int rank) {
    std::lock_guard lock(mutex);
    gone[static_cast<size_t>(rank)] = true;
    for (auto &[name, group] : groups)
      if (std::ranges::count(group->ranks, rank) > 0)
        group->leave(rank);
  }

  const int ranks;

private:
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<Group>> groups;
  std::vector<bool> gone;
};

class LocalWorld final : public World {
public:
  LocalWorld(int index, std::shared_ptr<Groups> groups) : index(index), groups(std::move(groups)) {
    std::vector<int> ranks(static_cast<size_t>(this->groups->ranks));
    std::iota(ranks.begin(), ranks.end(), 0);
    everyone = get("all", ranks);
    behind = get("background", ranks);
  }
  ~LocalWorld() override { groups->leave(index); }

  int rank() const override { return index; }
  int size() const override { return groups->ranks; }
  Communicator &all() override { return *everyone; }
  Communicator &background() override { return *behind; }

  Result<void> divide(int shardRanks, int ranksPerNode, int expertRanks) override {
    ++divisions;
    for (Axis axis : plan::EnumValuesAxis())
      if (axis != Axis::ExpertShard || expertRanks > 1)
        axes[static_cast<size_t>(axis)] = makeAxis(
            nameOf(axis), axisGroups(axis, index, size(), shardRanks, ranksPerNode, expertRanks));
    return {};
  }
  Communicator &along(Axis axis) override { return *axes[static_cast<size_t>(axis)]; }
  Result<void> exchange(int other, const void *x, void *d, uint64_t bytes) override {
    return get("pair", {std::min(index, other), std::max(index, other)})->exchange(x, d, bytes);
  }

  Progress &progress() override { return state; }

private:
  std::unique_ptr<Communicator> makeAxis(const std::string &axis, const AxisGroups &groups) {
    if (groups.onNode.empty())
      return get(axis, groups.all);
    return std::make_unique<NodeCommunicator>(get(axis, groups.onNode),
                                              get(axis, groups.acrossNodes));
  }

  // Returns this rank's view of a group along an axis.
  std::unique_ptr<LocalCommunicator> get(const std::string &axis, const std::vector<int> &members) {
    const std::string name = fmt::format("{} {} of {}", divisions, axis, fmt::join(members, " "));
    return std::make_unique<LocalCommunicator>(groups->get(name, members), index);
  }

  const int index;
  const std::shared_ptr<Groups> groups;
  Progress state;
  int divisions = 0;
  std::unique_ptr<Communicator> everyone, behind;
  std::array<std::unique_ptr<Communicator>, 4> axes; // indexed by plan::Axis
};

} // namespace

std::vector<std::unique_ptr<World>> makeLocalWorlds(int ranks, int shardRanks) {
  auto groups = std::make_shared<Groups>(ranks);
  std::vector<std::unique_ptr<World>> worlds;
  for (int rank = 0; rank < ranks; ++rank) {
    worlds.push_back(std::make_unique<LocalWorld>(rank, groups));
    (void)static_cast<bool>(worlds.back()->divide(shardRanks, ranks, /*expertRanks=*/1));
  }
  return worlds;
}

} // namespace lmc
