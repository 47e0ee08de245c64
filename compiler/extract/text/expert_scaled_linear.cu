// Checks products of rows and the weights of the row's expert, of 8-bit floats with scales for blocks.
// Checks some columns of the first, the last and some other rows of each expert. A row without an
// expert must not be written.

// Returns the element of an expert's matrix that column `column` multiplies by element i of a row.
static double weightAt(int64_t expert, int64_t column, int64_t i) {
  constexpr int64_t inner = kDepth * 128, columns = kAcross * 128;
  constexpr int64_t pitch = kBeside ? kExperts * inner : kTransposed ? columns : inner;
  const int64_t first = expert * inner * (kBeside ? 1 : columns),
                firstScale = expert * kDepth * (kBeside ? 1 : kAcross);
  const int64_t row = kTransposed ? i : column, at = kTransposed ? column : i;
  return arrays[kWeight].at(first + row * pitch + at) *
         arrays[kWeightScales].at(firstScale + row / 128 * (pitch / 128) + at / 128);
}

static void check(host::Difference &difference) {
  constexpr int64_t inner = kDepth * 128, columns = kAcross * 128;
  experts::draw();
  for (host::Array *scales : {&arrays[kXScales], &arrays[kWeightScales]}) {
    for (int64_t i = 0; i < scales->size(); ++i)
      scales->set(i, ldexp(1.0, int(i % 7) - 9));
    scales->send();
  }
  const std::vector<int64_t> offsets = experts::makeOffsets(arrays[kOffsets], kRows);
  const int64_t own = offsets.back();
  for (int64_t r = own; r < kRows; ++r)
    experts::forget(arrays[kX], r, inner);
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
    for (int64_t column : host::sample(columns, 64)) {
      double sum = 0;
      for (int64_t i = 0; i < inner; ++i)
        sum += arrays[kX].at(r * inner + i) * arrays[kXScales].at(i / 128 * kRows + r) *
               weightAt(expert, column, i);
      y.add(r * columns + column, sum);
    }
  }
  for (int64_t element = own * columns; element < kRows * columns; ++element)
    y.untouched.push_back(element);
  y.compare(arrays[kY], difference);
}
