#include "tools/lmc-run/check/SlowLinks.h"

#include "ground/support/Median.h"

#include <algorithm>
#include <map>
#include <set>

namespace lmc {

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

  // The slow links by the nodes at both ends; {-1, node} for ranks that are slow with all others.
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

} // namespace lmc
