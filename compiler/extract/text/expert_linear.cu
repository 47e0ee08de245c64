// Checks products of rows and the weights of the row's expert. Checks some columns of the first,
// the last and some other rows of each expert. A row without an expert must not be written.

static void check(host::Difference &difference) {
  experts::draw();
  const std::vector<int64_t> offsets = experts::makeOffsets(arrays[kOffsets], kRows);
  const int64_t own = offsets.back();
  for (int64_t r = own; r < kRows; ++r)
    experts::forget(arrays[kX], r, kInner);
  experts::compute();

  std::vector<int64_t> rows = host::sample(own, 64);
  for (int64_t first : offsets)
    for (int64_t r : {first - 1, first})
      if (r >= 0 && r < own)
        rows.push_back(r);
  host::Expected y;
  for (int64_t r : rows) {
    const int64_t expert =
        std::upper_bound(offsets.begin(), offsets.end() - 1, r) - offsets.begin() - 1;
    for (int64_t column : host::sample(kColumns, 64)) {
      double sum = 0;
      for (int64_t i = 0; i < kInner; ++i)
        sum += arrays[kX].at(r * kInner + i) *
               arrays[kWeight].at(expert * kInner * kColumns +
                                  (kTransposed ? i * kColumns + column : column * kInner + i));
      y.add(r * kColumns + column, sum);
    }
  }
  for (int64_t element = own * kColumns; element < kRows * kColumns; ++element)
    y.untouched.push_back(element);
  y.compare(arrays[kY], difference);
}
