// Checks the gradient of a router for some tokens. Each token has different random experts. With
// normalized weights and without dmass, some values are zero except for rounding: the sum `inner`,
// and the gradients of the logits of experts that the token did not choose.

static void check(host::Difference &difference) {
  experts::draw();
  host::Array &chosen = arrays[kExperts];
  std::vector<int64_t> choices;
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<bool> taken(kCount);
    for (int64_t j = 0; j < kChosen; ++j) {
      size_t expert = size_t(chosen.at(t * kChosen + j));
      while (taken[expert])
        expert = (expert + 1) % kCount;
      taken[expert] = true;
      choices.push_back(int64_t(expert));
    }
  }
  experts::send(chosen, choices);
  experts::compute();

  host::Expected dlogits;
  for (int64_t t : host::sample(kTokens, 4096)) {
    const std::vector<double> p = router::probabilities(t);
    std::vector<double> dp(kCount);
    for (int64_t e = 0; kDmass >= 0 && e < kCount; ++e)
      dp[size_t(e)] = arrays[size_t(kDmass)].at(e);
    double sum = router::kLeastSum, along = 0, inner = 0, innerSize = 0;
    auto expertOf = [&](int64_t j) { return size_t(choices[size_t(t * kChosen + j)]); };
    auto gradient = [&](int64_t j) { return kScale * arrays[kDweights].at(t * kChosen + j); };
    for (int64_t j = 0; j < kChosen; ++j) {
      sum += p[expertOf(j)];
      along += gradient(j) * p[expertOf(j)];
    }
    for (int64_t j = 0; j < kChosen; ++j)
      dp[expertOf(j)] += kNormalize ? (gradient(j) - along / sum) / sum : gradient(j);
    for (size_t e = 0; e < p.size(); ++e) {
      inner += p[e] * dp[e];
      innerSize += p[e] * std::fabs(dp[e]);
    }
    for (int64_t j = 0; kNormalize && j < kChosen; ++j) // terms of dp that may cancel
      innerSize += p[expertOf(j)] * std::fabs(gradient(j)) / sum;
    for (size_t e = 0; e < p.size(); ++e) {
      dlogits.add(t * kCount + int64_t(e),
                  p[e] * (kSigmoid ? (1 - p[e]) * dp[e] : dp[e] - inner));
      dlogits.terms.push_back(p[e] * innerSize);
    }
  }
  dlogits.compare(arrays[kDlogits], difference);
}
