#include "runtime/comm/MeasurePairs.h"

#include "runtime/comm/Agree.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string>

namespace lmc {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Bytes of a message. Each one is four times as large as the one before it.
constexpr uint64_t kLeast = 16 << 10, kMost = 16 << 20, kGrowth = 4;
// The latency is the minimum of so many: on a busy machine, the others are those of its scheduler.
constexpr int kLatencies = 9;
constexpr int kTimes = 2; // how often each pair is measured

// What a rank measures with the others.
class Measurement {
public:
  explicit Measurement(World &world) : world(world) {}

  // Measures the pair of this rank and `other`, in about `seconds`.
  Result<void> meet(int other, double seconds) {
    LMC_TRY(exchange(other, sizeof(double))); // warms up, and both go on at the same time
    PairSpeed speed{std::min(world.rank(), other), std::max(world.rank(), other)};
    for (int i = 0; i < kLatencies; ++i) {
      auto time = exchange(other, sizeof(double));
      LMC_TRY(time);
      speed.latency = i == 0 ? *time : std::min(speed.latency, *time);
    }
    for (uint64_t bytes = kLeast;; bytes *= kGrowth) {
      auto time = exchange(other, bytes);
      LMC_TRY(time);
      // The last message takes at most half of the time.
      if (*time <= seconds / (2 * double(kGrowth)) && bytes < kMost)
        continue;
      // Where the latency is most of the time, the difference would be noise.
      speed.bandwidth = double(bytes) / std::max(*time - speed.latency, *time / 2);
      break;
    }
    auto [known, isNew] = best.emplace(other, speed);
    if (!isNew && speed.seconds() < known->second.seconds())
      known->second = speed;
    return {};
  }

  // Returns the pairs of all ranks. This rank's are forgotten.
  Result<std::vector<PairSpeed>> gather() {
    std::string own;
    for (const auto &[other, speed] : best)
      if (other > world.rank()) // both have measured the same times
        own.append(reinterpret_cast<const char *>(&speed), sizeof speed);
    best.clear();
    auto texts = gatherTexts(world.all(), own);
    LMC_TRY(texts);
    std::vector<PairSpeed> all;
    for (const std::string &text : *texts)
      for (size_t at = 0; at < text.size(); at += sizeof(PairSpeed))
        std::memcpy(&all.emplace_back(), text.data() + at, sizeof(PairSpeed));
    return all;
  }

  uint64_t sent = 0;

private:
  // Returns the time of the exchange at the rank that took longer.
  Result<double> exchange(int other, uint64_t bytes) {
    x.resize(bytes);
    d.resize(bytes);
    const auto start = Clock::now();
    LMC_TRY(world.exchange(other, x.data(), d.data(), bytes));
    const double own = secondsSince(start);
    double theirs = 0;
    LMC_TRY(world.exchange(other, &own, &theirs, sizeof own));
    sent += bytes + sizeof own;
    return std::max(own, theirs);
  }

  World &world;
  std::map<int, PairSpeed> best; // by the other rank
  std::vector<char> x, d;
};

} // namespace

int roundsOf(int players) { return players < 2 ? 0 : players - 1 + players % 2; }

std::optional<int> opponentOf(int player, int round, int players) {
  const int m = roundsOf(players); // player m is nobody if `players` is odd
  int other = player == m ? round * (m + 1) / 2 % m : (round - player % m + m) % m;
  if (other == player)
    other = m;
  return other < players ? std::optional(other) : std::nullopt;
}

Result<PairSpeeds> measurePairs(World &world, int ranksPerNode, double seconds) {
  const int nodes = world.size() / ranksPerNode;
  const int node = world.rank() / ranksPerNode, place = world.rank() % ranksPerNode;
  const int rounds = roundsOf(ranksPerNode) + roundsOf(nodes);
  const double share = seconds / (kTimes * std::max(1, rounds));
  Measurement measurement(world);
  // `rankOf` returns the rank that is a player of this rank's tournament.
  auto play = [&](int player, int players, auto rankOf) -> Result<std::vector<PairSpeed>> {
    const auto start = Clock::now();
    for (int time = 0; time < kTimes; ++time) {
      auto late = anyOf(world.all(), time > 0 && secondsSince(start) > share * roundsOf(players));
      LMC_TRY(late);
      for (int round = 0; round < roundsOf(players) && !*late; ++round) {
        LMC_TRY(world.all().barrier());
        if (const std::optional<int> other = opponentOf(player, round, players))
          LMC_TRY(measurement.meet(rankOf(*other), share));
      }
    }
    return measurement.gather();
  };
  PairSpeeds speeds;
  auto onNode = play(place, ranksPerNode, [&](int other) { return node * ranksPerNode + other; });
  LMC_TRY(onNode);
  auto acrossNodes = play(node, nodes, [&](int other) { return other * ranksPerNode + place; });
  LMC_TRY(acrossNodes);
  std::vector<uint64_t> sent(static_cast<size_t>(world.size()));
  LMC_TRY(world.all().allGather(&measurement.sent, sent.data(), sizeof measurement.sent));
  return PairSpeeds{std::move(*onNode), std::move(*acrossNodes), *std::ranges::max_element(sent)};
}

} // namespace lmc
