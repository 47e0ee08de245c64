// Checks SwiGLU at some columns of some rows of experts. A row without an expert must not be
// written.

static void check(host::Difference &difference) {
  experts::draw();
  const int64_t own = experts::makeOffsets(arrays[kOffsets], kRows).back();
  for (int64_t r = own; r < kRows; ++r)
    experts::forget(arrays[kX], r, 2 * kColumns);
  experts::compute();

  host::Expected y;
  for (int64_t r : host::sample(own, 512))
    for (int64_t column : host::sample(kColumns, 64)) {
      const double gate = arrays[kX].at(r * 2 * kColumns + column);
      const double up = arrays[kX].at(r * 2 * kColumns + kColumns + column);
      y.add(r * kColumns + column, gate / (1 + std::exp(-gate)) * up);
    }
  for (int64_t element = own * kColumns; element < kRows * kColumns; ++element)
    y.untouched.push_back(element);
  y.compare(arrays[kY], difference);
}
