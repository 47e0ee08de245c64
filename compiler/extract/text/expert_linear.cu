// Checks products of rows and the weights of the row's expert.

static void check(host::Difference &difference) {
  experts::draw();
  const std::vector<int64_t> offsets = experts::makeOffsets(arrays[kOffsets], kRows);
  for (int64_t r = offsets.back(); r < kRows; ++r)
    experts::forget(arrays[kX], r, kInner);
  experts::compute();

  auto sumOf = [](int64_t expert, int64_t r, int64_t column) {
    double sum = 0;
    for (int64_t i = 0; i < kInner; ++i)
      sum += arrays[kX].at(r * kInner + i) *
             arrays[kWeight].at(expert * kInner * kColumns +
                                (kTransposed ? i * kColumns + column : column * kInner + i));
    return sum;
  };
  experts::checkProducts(offsets, kRows, kColumns, arrays[kY], difference, sumOf);
}
