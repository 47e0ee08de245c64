// Checks a matrix product with the gradient of SwiGLU, at some columns of some rows. The gradient d
// of silu(g) u is dy weight (kWhole), or random. The kernel overwrites d with silu(g) u. It also
// overwrites g and u with their gradients.

static void check(host::Difference &difference) {
  experts::draw();
  host::Expected dgu, a;
  for (int64_t r : host::sample(kRows, 64))
    for (int64_t column : host::sample(kColumns, 64)) {
      double d = 0;
      if constexpr (kWhole)
        for (int64_t i = 0; i < kInner; ++i)
          d += arrays[kDy].at(r * kInner + i) * arrays[kWeight].at(i * kColumns + column);
      else
        d = arrays[kA].at(r * kColumns + column);
      const int64_t first = r * 2 * kColumns + column;
      const double gate = arrays[kGu].at(first), up = arrays[kGu].at(first + kColumns);
      const double s = 1 / (1 + std::exp(-gate));
      dgu.add(first, d * up * s * (1 + gate * (1 - s)));
      dgu.add(first + kColumns, d * gate * s);
      a.add(r * kColumns + column, gate * s * up);
    }
  experts::compute();

  dgu.compare(arrays[kGu], difference);
  if (kBoth)
    a.compare(arrays[kA], difference);
}
