#include "runtime/comm/MeasureGroup.h"

#include "runtime/support/Median.h"

#include <algorithm>
#include <chrono>

namespace lmc {

namespace {

constexpr uint64_t kSizes[] = {8, 64 << 10, 1 << 20, 8 << 20};
constexpr int kRepeats = 5;
constexpr uint64_t kBroadcast = 1 << 20;

// Begins at the same time on all ranks. Returns the time of this rank, in seconds.
template <typename F> Result<double> timed(Communicator &group, F act) {
  LMC_TRY(group.barrier());
  const auto start = std::chrono::steady_clock::now();
  LMC_TRY(act());
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns the times of all ranks, by position.
Result<std::vector<double>> ofAllRanks(Communicator &group, double seconds) {
  std::vector<double> all(static_cast<size_t>(group.size()));
  LMC_TRY(group.allGather(&seconds, all.data(), sizeof(seconds)));
  return all;
}

} // namespace

double GroupSpeed::bandwidth() const {
  const AllGather &largest = allGathers.back();
  return static_cast<double>(largest.bytes * (secondsOfRank.size() - 1)) / largest.seconds;
}

std::vector<int> GroupSpeed::slowRanks() const {
  const double usual = median(secondsOfRank);
  std::vector<int> slow;
  for (size_t i = 0; i < secondsOfRank.size(); ++i)
    if (secondsOfRank[i] >= 2 * usual)
      slow.push_back(static_cast<int>(i));
  return slow;
}

Result<GroupSpeed> measureGroup(Communicator &group) {
  const auto ranks = static_cast<size_t>(group.size());
  GroupSpeed speed;
  for (uint64_t bytes : kSizes) {
    std::vector<char> x(bytes), d(bytes * ranks);
    std::vector<double> times;
    for (int repeat = -1; repeat < kRepeats; ++repeat) { // the first one warms up
      auto own = timed(group, [&] { return group.allGather(x.data(), d.data(), bytes); });
      LMC_TRY(own);
      auto all = ofAllRanks(group, *own);
      LMC_TRY(all);
      if (repeat >= 0)
        times.push_back(*std::ranges::max_element(*all));
    }
    speed.allGathers.push_back({bytes, median(times)});
  }

  std::vector<char> data(kBroadcast);
  std::vector<std::vector<double>> times(ranks);
  for (int repeat = 0; repeat < kRepeats; ++repeat)
    for (size_t root = 0; root < ranks; ++root) {
      auto own = timed(
          group, [&] { return group.broadcast(data.data(), data.size(), static_cast<int>(root)); });
      LMC_TRY(own);
      auto all = ofAllRanks(group, *own);
      LMC_TRY(all);
      for (size_t i = 0; i < ranks; ++i)
        if (i != root) {
          times[root].push_back((*all)[i]);
          times[i].push_back((*all)[i]);
        }
    }
  for (std::vector<double> &each : times)
    speed.secondsOfRank.push_back(median(each));
  return speed;
}

} // namespace lmc
