// Runs the kernel that rounds rows to 8-bit floats, and compares some rows.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kBlocks * 128);
  experts::compute();
  blocks::checkVectors(arrays[kX], arrays[kCodes], arrays[kScales], kRows, kBlocks * 128,
                       /*transposed=*/false, difference);
}
