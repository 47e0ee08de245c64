// Runs the kernel that rounds rows to 8-bit floats, and compares some rows.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kBlocks * 128);
  experts::compute();

  const host::Type type = arrays[kCodes].type;
  host::Expected codes, scales;
  for (int64_t row : host::sample(kRows, 64))
    for (int64_t block = 0; block < kBlocks; ++block) {
      const int64_t first = (row * kBlocks + block) * 128;
      double largest = 0;
      for (int64_t i = 0; i < 128; ++i)
        largest = fmax(largest, fabs(arrays[kX].at(first + i)));
      const double scale = blocks::scaleOf(type, largest);
      scales.add(block * kRows + row, scale);
      for (int64_t i = 0; i < 128; ++i)
        codes.add(first + i, blocks::rounded(type, arrays[kX].at(first + i) / scale));
    }
  codes.compare(arrays[kCodes], difference);
  scales.compare(arrays[kScales], difference);
}
