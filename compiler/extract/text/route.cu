// Checks a router. A chosen expert is right if no expert that is still free has a larger score
// (except for rounding), and no free expert with a lower number has the same score. Weights and
// counts must fit the chosen experts.

static void check(host::Difference &difference) {
  experts::draw();
  experts::compute();
  host::Array &chosen = arrays[kExperts];
  chosen.fetch();
  const double unit = arrays[kWeights].type == host::Type::F64 ? 1e-13 : 4e-6;
  host::Expected weights, counts, mass;
  std::vector<double> choices(kCount), sums(kCount);
  for (int64_t t = 0; t < kTokens; ++t) {
    const std::vector<double> p = router::probabilities(t);
    std::vector<double> score = p;
    double whole = kSigmoid ? router::kLeastSum : 0, sum = router::kLeastSum;
    for (size_t e = 0; e < p.size(); ++e) {
      whole += p[e];
      score[e] += kBias < 0 ? 0 : arrays[size_t(kBias)].at(int64_t(e));
    }
    std::vector<bool> taken(kCount);
    std::vector<size_t> own;
    for (int64_t j = 0; j < kChosen; ++j) {
      size_t best = 0; // the first expert with the largest score
      while (taken[best])
        ++best;
      for (size_t e = best; e < p.size(); ++e)
        best = !taken[e] && score[e] > score[best] ? e : best;
      const double found = chosen.at(t * kChosen + j);
      size_t expert = best;
      if (found >= 0 && found < kCount && !taken[size_t(found)]) {
        const size_t other = size_t(found);
        const double allowed = unit * (p[best] + std::fabs(score[best] - p[best]) + p[other] +
                                       std::fabs(score[other] - p[other]));
        bool isRight = score[best] - score[other] <= allowed;
        for (size_t e = 0; e < other; ++e)
          isRight = isRight && (taken[e] || score[e] != score[other]);
        expert = isRight ? other : best;
      }
      difference.compare(chosen, t * kChosen + j, double(expert));
      taken[expert] = true;
      own.push_back(expert);
      sum += p[expert];
      choices[expert] += 1;
    }
    for (size_t j = 0; j < own.size(); ++j)
      weights.add(t * kChosen + int64_t(j), kScale * p[own[j]] / (kNormalize ? sum : 1));
    for (size_t e = 0; e < p.size(); ++e)
      sums[e] += p[e] / (kSigmoid ? whole : 1);
  }
  for (size_t e = 0; e < sums.size(); ++e) {
    counts.add(int64_t(e), choices[e]);
    mass.add(int64_t(e), sums[e]);
  }
  weights.compare(arrays[kWeights], difference);
  counts.compare(arrays[kCounts], difference);
  mass.compare(arrays[kMass], difference);
}
