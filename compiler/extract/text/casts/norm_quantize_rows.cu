// Runs the kernel that rounds an RMS norm to 8-bit floats along rows, and compares some rows.

static void check(host::Difference &difference) {
  constexpr int64_t kColumns = kBlocks * 128;
  experts::draw();
  blocks::spread(arrays[kX], kColumns);
  experts::compute();
  std::vector<double> reciprocals;
  host::Expected expected;
  for (int64_t row = 0; row < kRows; ++row) {
    double squares = 0;
    for (int64_t i = row * kColumns; i < (row + 1) * kColumns; ++i)
      squares += arrays[kX].at(i) * arrays[kX].at(i);
    reciprocals.push_back(1 / std::sqrt(squares / kColumns + kEps));
    expected.add(row, reciprocals.back());
  }
  arrays[kReciprocals].fetch();
  expected.compare(arrays[kReciprocals], difference);
  blocks::checkVectors(blocks::normOf(arrays[kX], arrays[kWeight], kColumns,
                                      [&](int64_t row) { return reciprocals[size_t(row)]; }),
                       arrays[kCodes], arrays[kScales], kRows, kColumns, /*transposed=*/false,
                       difference);
}
