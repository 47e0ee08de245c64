#include "runtime/data/Mixture.h"

#include "ground/support/Shares.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lmc {

Result<Mixture> Mixture::make(const std::vector<double> &weights) {
  LMC_LET(whole, sharesOfWeights(weights));
  Mixture mixture;
  mixture.shares = std::move(*whole);
  const std::vector<uint64_t> &shares = mixture.shares;
  const auto k = static_cast<int64_t>(shares.size());
  const auto period = std::accumulate(shares.begin(), shares.end(), int64_t(0));
  // Let b be the lag of a source: its share of all blocks up to this one, minus the blocks that it
  // has. With k > 1 sources, one may get this block if its b >= 1 / (2k - 2). Of these, the source
  // gets it whose b would first reach 1 - 1 / (2k - 2): after slack / (parts * share) more blocks.
  // The code multiplies b and both bounds by parts * period.
  const int64_t parts = std::max<int64_t>(1, 2 * k - 2);
  std::vector<int64_t> counts(shares.size());
  for (int64_t block = 0; block < period; ++block) {
    if (block % static_cast<int64_t>(kStride) == 0)
      mixture.counts.insert(mixture.counts.end(), counts.begin(), counts.end());
    size_t next = shares.size();
    int64_t nextSlack = 0;
    for (size_t source = 0; source < shares.size(); ++source) {
      const auto share = static_cast<int64_t>(shares[source]);
      const int64_t behind = parts * (share * (block + 1) - counts[source] * period);
      if (behind < period && k > 1)
        continue;
      const int64_t slack = (parts - 1) * period - behind;
      if (next == shares.size() ||
          static_cast<__int128>(slack) * static_cast<int64_t>(shares[next]) <
              static_cast<__int128>(nextSlack) * share) {
        next = source;
        nextSlack = slack;
      }
    }
    mixture.sources.push_back(static_cast<uint16_t>(next));
    ++counts[next];
  }
  mixture.counts.insert(mixture.counts.end(), counts.begin(), counts.end());
  return mixture;
}

Mixture::Place Mixture::operator()(uint64_t block) const {
  const uint32_t source = sources[block % period()];
  return {source, count(source, block)};
}

uint64_t Mixture::count(uint32_t source, uint64_t blocks) const {
  const uint64_t inPeriod = blocks % period(), before = inPeriod / kStride * kStride;
  const auto first = sources.begin() + static_cast<ptrdiff_t>(before);
  return blocks / period() * shares[source] + counts[inPeriod / kStride * shares.size() + source] +
         static_cast<uint64_t>(
             std::count(first, first + static_cast<ptrdiff_t>(inPeriod - before), source));
}

} // namespace lmc
