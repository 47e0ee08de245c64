// Checks products of rows and the weights of the row's expert, of 8-bit floats with scales for blocks.

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
  for (int64_t r = offsets.back(); r < kRows; ++r)
    experts::forget(arrays[kX], r, inner);
  experts::compute();

  auto sumOf = [](int64_t expert, int64_t r, int64_t column) {
    double sum = 0;
    for (int64_t i = 0; i < inner; ++i)
      sum += arrays[kX].at(r * inner + i) * arrays[kXScales].at(i / 128 * kRows + r) *
             weightAt(expert, column, i);
    return sum;
  };
  experts::checkProducts(offsets, kRows, columns, arrays[kY], difference, sumOf);
}
