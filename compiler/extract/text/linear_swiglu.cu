// Checks a matrix product with SwiGLU, at some columns of some rows: a = silu(g) u with
// [g | u] = x weight^T (kWhole), or with random g and u.

static void check(host::Difference &difference) {
  experts::draw();
  experts::compute();

  host::Expected gu, a;
  for (int64_t r : host::sample(kRows, 64))
    for (int64_t column : host::sample(kColumns, 64)) {
      double halves[2];
      for (int64_t half = 0; half < 2; ++half) {
        const int64_t at = r * 2 * kColumns + half * kColumns + column;
        if constexpr (kWhole) {
          halves[half] = 0;
          for (int64_t i = 0; i < kInner; ++i)
            halves[half] += arrays[kX].at(r * kInner + i) *
                            arrays[kWeight].at((half * kColumns + column) * kInner + i);
          gu.add(at, halves[half]);
        } else {
          halves[half] = arrays[kGu].at(at);
        }
      }
      a.add(r * kColumns + column, halves[0] / (1 + std::exp(-halves[0])) * halves[1]);
    }
  if (kWhole && kBoth)
    gu.compare(arrays[kGu], difference);
  a.compare(arrays[kA], difference);
}
