// Runs the kernel that rounds an RMS norm to 8-bit floats along columns, and compares some columns.

static void check(host::Difference &difference) {
  constexpr int64_t kColumns = kAcross * 128;
  experts::draw();
  blocks::spread(arrays[kX], kColumns);
  experts::compute();
  blocks::checkVectors(blocks::normOf(arrays[kX], arrays[kWeight], kColumns,
                                      [](int64_t row) { return arrays[kReciprocals].at(row); }),
                       arrays[kCodes], arrays[kScales], kDown * 128, kColumns, /*transposed=*/true,
                       difference);
}
