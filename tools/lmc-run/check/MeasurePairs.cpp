#include "tools/lmc-run/check/MeasurePairs.h"

#include "ground/support/Median.h"
#include "runtime/comm/Agree.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <string>

namespace lmc {

// The latency is the minimum of this many measurements, because a busy machine delays some.
static constexpr int kLatencies = 9;

double steadySeconds() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(time).count();
}

Result<GroupSpeed> measureGroup(Communicator &group, double seconds,
                                const std::function<double()> &now) {
  // The minimum and maximum bytes of all-gather results, and the ratio of successive sizes.
  constexpr uint64_t kLeast = 64 << 10, kMost = 64 << 20, kGrowth = 4;
  const auto ranks = static_cast<uint64_t>(group.size());
  GroupSpeed speed;
  std::vector<char> x(sizeof(double)), d;

  // Every rank sends `bytes` bytes to all others. Returns the seconds of the slowest rank.
  auto gather = [&](uint64_t bytes) -> Result<double> {
    x.resize(bytes);
    d.resize(bytes * ranks);
    LMC_TRY(group.barrier());
    const double start = now();
    LMC_TRY(group.allGather(x.data(), d.data(), bytes));
    const double mine = now() - start;
    std::vector<double> all(ranks);
    LMC_TRY(group.allGather(&mine, all.data(), sizeof mine));
    speed.sent += (bytes + sizeof mine) * (ranks - 1);
    return *std::ranges::max_element(all);
  };

  for (int i = 0; i < kLatencies; ++i) {
    LMC_LET(time, gather(sizeof(double)));
    speed.latency = i == 0 ? *time : std::min(speed.latency, *time);
  }

  // The last size should take at most `seconds` / 3, because it is measured twice.
  uint64_t bytes = std::max<uint64_t>(sizeof(double), kLeast / ranks);
  for (;;) {
    LMC_LET(time, gather(bytes));
    const bool isLast = *time > seconds / (3 * double(kGrowth)) || bytes * ranks * kGrowth > kMost;
    double best = *time;
    if (isLast && best < seconds / 3) {
      LMC_LET(again, gather(bytes));
      best = std::min(best, *again);
    }
    if (isLast) {
      // The bandwidth's divisor is at least best / 2: a small best - latency would be mostly noise.
      speed.bandwidth = double(bytes * (ranks - 1)) / std::max(best - speed.latency, best / 2);
      return speed;
    }
    bytes *= kGrowth;
  }
}

// Returns the median of the values of a map; 0 if it is empty.
template <typename Key> static double medianOf(const std::map<Key, double> &times) {
  std::vector<double> values;
  for (const auto &[key, time] : times)
    values.push_back(time);
  return values.empty() ? 0 : median(std::move(values));
}

static void addOnce(std::vector<int> &ranks, int rank) {
  if (std::ranges::find(ranks, rank) == ranks.end())
    ranks.push_back(rank);
}

std::vector<SlowLink> slowLinks(const std::vector<PairSpeed> &pairs, int ranksPerNode) {
  std::map<int, int> met;
  for (const PairSpeed &pair : pairs)
    ++met[pair.a], ++met[pair.b];
  std::map<int, double> ofRank;
  for (const PairSpeed &pair : pairs)
    for (int rank : {pair.a, pair.b})
      if (met[rank] > 1) {
        auto [known, isNew] = ofRank.emplace(rank, pair.seconds());
        known->second = std::min(known->second, pair.seconds());
      }

  // Keys: the two nodes of slow links; {-1, node} for ranks of `node` that are slow with all ranks.
  std::map<std::pair<int, int>, SlowLink> slow;
  std::set<int> slowRanks;
  const double usualRank = medianOf(ofRank);
  for (const auto &[rank, time] : ofRank)
    if (time >= kSlow * usualRank) {
      slowRanks.insert(rank);
      SlowLink &link = slow[{-1, rank / ranksPerNode}];
      link.from.push_back(rank);
      link.seconds = std::max(link.seconds, time);
      link.usual = usualRank;
    }

  std::map<std::pair<int, int>, double> ofPair;
  for (const PairSpeed &pair : pairs)
    if (!slowRanks.contains(pair.a) && !slowRanks.contains(pair.b))
      ofPair[{pair.a, pair.b}] = pair.seconds();
  const double usualPair = medianOf(ofPair);
  for (const auto &[pair, time] : ofPair)
    if (time >= kSlow * usualPair) {
      SlowLink &link = slow[{pair.first / ranksPerNode, pair.second / ranksPerNode}];
      addOnce(link.from, pair.first);
      addOnce(link.to, pair.second);
      link.seconds = std::max(link.seconds, time);
      link.usual = usualPair;
    }
  std::vector<SlowLink> links;
  for (const auto &[nodes, link] : slow)
    links.push_back(link);
  return links;
}

namespace {

// The sizes of messages in bytes: minimum, maximum, and ratio of one size to the previous size.
constexpr uint64_t kLeast = 16 << 10, kMost = 16 << 20, kGrowth = 4;
constexpr int kTimes = 2;    // how often each pair is measured
constexpr size_t kLooks = 8; // maximum number of pairs measured again because they look slow

class PairMeasurement {
public:
  explicit PairMeasurement(World &world) : world(world) {}

  // Measures the pair of this rank and `other`, in about `seconds`.
  Result<void> meet(int other, double seconds) {
    LMC_TRY(exchange(other, sizeof(double))); // a warm-up, after which both ranks begin together
    PairSpeed speed{std::min(world.rank(), other), std::max(world.rank(), other)};
    for (int i = 0; i < kLatencies; ++i) {
      LMC_LET(time, exchange(other, sizeof(double)));
      speed.latency = i == 0 ? *time : std::min(speed.latency, *time);
    }
    for (uint64_t bytes = kLeast;; bytes *= kGrowth) {
      LMC_LET(time, exchange(other, bytes));
      // Sends a larger message if it should take at most half of `seconds`.
      if (*time <= seconds / (2 * double(kGrowth)) && bytes < kMost)
        continue;
      // The bandwidth's divisor is at least time / 2: a small time - latency would be mostly noise.
      speed.bandwidth = double(bytes) / std::max(*time - speed.latency, *time / 2);
      break;
    }
    auto [known, isNew] = best.emplace(other, speed);
    if (!isNew && speed.seconds() < known->second.seconds())
      known->second = speed;
    return {};
  }

  // Returns, on every rank, the speeds of the pairs of all ranks.
  Result<std::vector<PairSpeed>> gather() {
    std::string own;
    for (const auto &[other, speed] : best)
      if (other > world.rank()) // both ranks of a pair know its speed, so only one of them sends it
        own.append(reinterpret_cast<const char *>(&speed), sizeof speed);
    LMC_LET(texts, gatherTexts(world.all(), own));
    std::vector<PairSpeed> all;
    for (const std::string &text : *texts)
      for (size_t at = 0; at < text.size(); at += sizeof(PairSpeed))
        std::memcpy(&all.emplace_back(), text.data() + at, sizeof(PairSpeed));
    return all;
  }

  void forget() { best.clear(); }

  uint64_t sent = 0;

private:
  // Returns the seconds of the exchange at the slower of the two ranks.
  Result<double> exchange(int other, uint64_t bytes) {
    x.resize(bytes);
    d.resize(bytes);
    const double start = steadySeconds();
    LMC_TRY(world.exchange(other, x.data(), d.data(), bytes));
    const double own = steadySeconds() - start;
    double theirs = 0;
    LMC_TRY(world.exchange(other, &own, &theirs, sizeof own));
    sent += bytes + sizeof own;
    return std::max(own, theirs);
  }

  World &world;
  std::map<int, PairSpeed> best; // the key is the other rank of the pair
  std::vector<char> x, d;
};

// Returns the pair to measure again: the slowest candidate that is not in `seen`. Candidates are
// one pair of each slow link and, for each rank that is slow with all others, its fastest pair.
std::optional<PairSpeed> suspectOf(const std::vector<PairSpeed> &pairs, int ranksPerNode,
                                   const std::set<std::pair<int, int>> &seen) {
  std::optional<PairSpeed> suspect;
  for (const SlowLink &link : slowLinks(pairs, ranksPerNode)) {
    const PairSpeed *chosen = nullptr;
    for (const PairSpeed &pair : pairs) {
      const bool isPair = !link.to.empty() && pair.a == link.from[0] && pair.b == link.to[0];
      const bool isOfRank = link.to.empty() && (pair.a == link.from[0] || pair.b == link.from[0]);
      if (isPair || (isOfRank && (!chosen || pair.seconds() < chosen->seconds())))
        chosen = &pair;
    }
    if (chosen && !seen.contains({chosen->a, chosen->b}) &&
        (!suspect || chosen->seconds() > suspect->seconds()))
      suspect = *chosen;
  }
  return suspect;
}

} // namespace

int roundsOf(int players) { return players < 2 ? 0 : players - 1 + players % 2; }

std::optional<int> opponentOf(int player, int round, int players) {
  const int m = roundsOf(players); // players are 0 to m, or 0 to m - 1 if their number is odd
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
  PairMeasurement measurement(world);

  // In the round-robin tournament, playerOf(rank) is the rank's number. rankOf() is the inverse.
  auto play = [&](int players, auto playerOf, auto rankOf) -> Result<std::vector<PairSpeed>> {
    const double start = steadySeconds();
    const int player = playerOf(world.rank());
    measurement.forget();
    auto meet = [&](int round, bool takesPart) -> Result<void> {
      LMC_TRY(world.all().barrier());
      const std::optional<int> other = opponentOf(player, round, players);
      return takesPart && other ? measurement.meet(rankOf(*other), share) : Result<void>();
    };
    for (int time = 0; time < kTimes; ++time) {
      LMC_LET(late,
              anyOf(world.all(), time > 0 && steadySeconds() - start > share * roundsOf(players)));
      for (int round = 0; round < roundsOf(players) && !*late; ++round)
        LMC_TRY(meet(round, true));
    }
    for (std::set<std::pair<int, int>> seen;;) {
      LMC_LET(pairs, measurement.gather());
      const auto suspect = suspectOf(*pairs, ranksPerNode, seen);
      if (!suspect || seen.size() == kLooks)
        return pairs;
      seen.emplace(suspect->a, suspect->b);
      for (int round = 0; round < roundsOf(players); ++round)
        if (opponentOf(playerOf(suspect->a), round, players) == playerOf(suspect->b))
          LMC_TRY(
              meet(round, node == suspect->a / ranksPerNode || node == suspect->b / ranksPerNode));
    }
  };

  auto onNode = play(
      ranksPerNode, [&](int rank) { return rank % ranksPerNode; },
      [&](int player) { return node * ranksPerNode + player; });
  LMC_TRY(onNode);
  auto acrossNodes = play(
      nodes, [&](int rank) { return rank / ranksPerNode; },
      [&](int player) { return player * ranksPerNode + place; });
  LMC_TRY(acrossNodes);
  std::vector<uint64_t> sent(static_cast<size_t>(world.size()));
  LMC_TRY(world.all().allGather(&measurement.sent, sent.data(), sizeof measurement.sent));
  return PairSpeeds{std::move(*onNode), std::move(*acrossNodes), *std::ranges::max_element(sent)};
}

} // namespace lmc
