// Checks the gradient of the experts' weights, at some elements of each expert.

static void check(host::Difference &difference) {
  experts::draw();
  const std::vector<int64_t> offsets = experts::makeOffsets(arrays[kOffsets], kRows);
  for (int64_t r = offsets.back(); r < kRows; ++r) {
    experts::forget(arrays[kDy], r, kColumns);
    experts::forget(arrays[kX], r, kInner);
  }
  host::Expected d;
  for (int64_t e = 0; e < kExperts; ++e)
    for (int64_t column : host::sample(kColumns, 16))
      for (int64_t i : host::sample(kInner, 16)) {
        const int64_t element = (e * kColumns + column) * kInner + i;
        double sum = kAccumulate ? arrays[kD].at(element) : 0;
        for (int64_t r = offsets[size_t(e)]; r < offsets[size_t(e) + 1]; ++r)
          sum += arrays[kDy].at(r * kColumns + column) * arrays[kX].at(r * kInner + i);
        d.add(element, sum);
      }
  experts::compute();
  d.compare(arrays[kD], difference);
}
