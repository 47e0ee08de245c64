#include "runtime/data/Mixture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace lmc {

static constexpr size_t kMostSources = 1000;
static constexpr uint64_t kMostBlocks = uint64_t(1) << 24;

// Returns whole numbers in the ratio of the weights, as small as possible; none if their sum would
// be beyond kMostBlocks. A weight counts as the shortest decimal number that is read as its value.
static std::vector<uint64_t> wholeShares(const std::vector<double> &weights) {
  // Digits and exponent: weight = digits * 10^exponent.
  std::vector<std::pair<uint64_t, int>> decimals;
  for (double weight : weights) {
    const std::string text = fmt::format("{}", weight); // shortest, such as "0.125" or "1e-07"
    const size_t e = std::min(text.find('e'), text.size());
    std::string digits = text.substr(0, e);
    int exponent = e < text.size() ? std::stoi(text.substr(e + 1)) : 0;
    if (const size_t point = digits.find('.'); point != std::string::npos) {
      exponent -= static_cast<int>(digits.size() - point - 1);
      digits.erase(point, 1);
    }
    decimals.emplace_back(std::stoull(digits), exponent);
  }
  const int least =
      std::ranges::min_element(decimals, {}, [](auto &d) { return d.second; })->second;
  std::vector<uint64_t> shares;
  for (auto [digits, exponent] : decimals) {
    for (; exponent > least; --exponent) {
      if (digits > UINT64_MAX / 10)
        return {};
      digits *= 10;
    }
    shares.push_back(digits);
  }
  uint64_t divisor = 0, sum = 0;
  for (uint64_t share : shares)
    divisor = std::gcd(divisor, share);
  for (uint64_t &share : shares) {
    share /= divisor;
    if (share > kMostBlocks || (sum += share) > kMostBlocks)
      return {};
  }
  return shares;
}

Result<Mixture> Mixture::make(const std::vector<double> &weights) {
  if (weights.empty() || weights.size() > kMostSources)
    return Error{fmt::format("there are {} sources; from 1 to {} can be mixed", weights.size(),
                             kMostSources)};
  for (double weight : weights)
    if (!std::isfinite(weight) || weight <= 0)
      return Error{fmt::format("a weight is {}; weights are numbers above 0", weight)};
  Mixture mixture;
  mixture.shares = wholeShares(weights);
  if (mixture.shares.empty())
    return Error{
        fmt::format("the order of the sources would repeat only after more than {} blocks; "
                    "give weights with fewer digits, such as 0.35 for 0.3471529",
                    kMostBlocks)};
  const std::vector<uint64_t> &shares = mixture.shares;
  const auto k = static_cast<int64_t>(shares.size());
  const auto period = std::accumulate(shares.begin(), shares.end(), int64_t(0));
  // Of the sources that are at least 1 / (2k - 2) blocks behind their share, the next block is of
  // the one that would first be 1 - 1 / (2k - 2) blocks behind. All terms are multiplied by
  // (2k - 2) * period.
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
      const int64_t slack = (parts - 1) * period - behind; // over share: blocks that it can wait
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
