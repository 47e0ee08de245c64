#include "ground/support/Shares.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

namespace lmc {

static constexpr size_t kMostSources = 1000;
static constexpr uint64_t kMostBlocks = uint64_t(1) << 24;

// Returns whole numbers in the ratio of the positive weights, or {} if the sum exceeds kMostBlocks.
static std::vector<uint64_t> wholeShares(const std::vector<double> &weights) {
  // Pairs (digits, exponent) of the weights: weight = digits * 10^exponent.
  std::vector<std::pair<uint64_t, int>> decimals;
  for (double weight : weights) {
    const std::string text = fmt::format("{}", weight); // shortest text, like "0.125" or "1e-07"
    const size_t e = std::min(text.find('e'), text.size());
    std::string digits = text.substr(0, e);
    int exponent = e < text.size() ? std::stoi(text.substr(e + 1)) : 0;
    if (const size_t point = digits.find('.'); point != std::string::npos) {
      exponent -= static_cast<int>(digits.size() - point - 1);
      digits.erase(point, 1);
    }
    decimals.emplace_back(std::stoull(digits), exponent);
  }
  const int least = std::ranges::min(decimals, {}, &std::pair<uint64_t, int>::second).second;
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

Result<std::vector<uint64_t>> sharesOfWeights(const std::vector<double> &weights) {
  if (weights.empty() || weights.size() > kMostSources)
    return userError("there are {} sources; from 1 to {} can be mixed", weights.size(),
                     kMostSources);
  for (double weight : weights)
    if (!std::isfinite(weight) || weight <= 0)
      return userError("a weight is {}; weights are numbers above 0", weight);
  std::vector<uint64_t> shares = wholeShares(weights);
  if (shares.empty())
    return userError("the order of the sources would repeat only after more than {} blocks; give "
                     "weights with fewer digits, such as 0.35 for 0.3471529",
                     kMostBlocks);
  return shares;
}

} // namespace lmc
