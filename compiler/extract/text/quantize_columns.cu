// Runs the kernel that rounds columns to 8-bit floats, and compares some columns.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kColumns);
  experts::compute();

  const host::Type type = arrays[kCodes].type;
  host::Expected codes, scales;
  for (int64_t column : host::sample(kColumns, 64))
    for (int64_t block = 0; block < kBlocks; ++block) {
      auto x = [&](int64_t i) { return arrays[kX].at((block * 128 + i) * kColumns + column); };
      double largest = 0;
      for (int64_t i = 0; i < 128; ++i)
        largest = fmax(largest, fabs(x(i)));
      const double scale = blocks::scaleOf(type, largest);
      scales.add(block * kColumns + column, scale);
      for (int64_t i = 0; i < 128; ++i)
        codes.add((column * kBlocks + block) * 128 + i, blocks::rounded(type, x(i) / scale));
    }
  codes.compare(arrays[kCodes], difference);
  scales.compare(arrays[kScales], difference);
}
