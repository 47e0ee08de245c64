// Checks the gradient of SwiGLU at some columns of some rows of experts. A row without an expert
// must not be written.

static void check(host::Difference &difference) {
  experts::draw();
  const int64_t own = experts::makeOffsets(arrays[kOffsets], kRows).back();
  for (int64_t r = own; r < kRows; ++r) {
    experts::forget(arrays[kDy], r, kColumns);
    experts::forget(arrays[kX], r, 2 * kColumns);
  }
  experts::compute();

  host::Expected dx;
  for (int64_t r : host::sample(own, 512))
    for (int64_t column : host::sample(kColumns, 64)) {
      const int64_t first = r * 2 * kColumns + column;
      const double gate = arrays[kX].at(first), up = arrays[kX].at(first + kColumns);
      const double d = arrays[kDy].at(r * kColumns + column), s = 1 / (1 + std::exp(-gate));
      dx.add(first, d * up * s * (1 + gate * (1 - s)));
      dx.add(first + kColumns, d * gate * s);
    }
  for (int64_t element = own * 2 * kColumns; element < kRows * 2 * kColumns; ++element)
    dx.untouched.push_back(element);
  dx.compare(arrays[kDx], difference);
}
