// Functions that the programs for a router and for its gradient share.

namespace router {

// A token's chosen probabilities are divided by (their sum + kLeastSum).
constexpr double kLeastSum = kSigmoid ? 1e-20 : 0;

// Returns the softmax of the logits of token t, or the sigmoid of each logit.
inline std::vector<double> probabilities(int64_t t) {
  const host::Array &logits = arrays[kLogits];
  std::vector<double> p(kCount);
  double most = -INFINITY, sum = 0;
  for (int64_t e = 0; e < kCount; ++e)
    most = std::max(most, logits.at(t * kCount + e));
  for (int64_t e = 0; e < kCount; ++e) {
    const double x = logits.at(t * kCount + e);
    sum += p[size_t(e)] = kSigmoid ? 1 / (1 + std::exp(-x)) : std::exp(x - most);
  }
  for (double &each : p)
    each /= kSigmoid ? 1 : sum;
  return p;
}

} // namespace router
