// Runs the kernel that rounds columns to 8-bit floats, and compares some columns.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kColumns);
  experts::compute();
  blocks::checkVectors(arrays[kX], arrays[kCodes], arrays[kScales], kBlocks * 128, kColumns,
                       /*transposed=*/true, difference);
}
