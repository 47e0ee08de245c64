// Runs the kernel that rounds rows and columns to 8-bit floats, and compares some of each.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kAcross * 128);
  experts::compute();
  blocks::checkVectors(arrays[kX], arrays[kCodes], arrays[kScales], kDown * 128, kAcross * 128,
                       /*transposed=*/false, difference);
  blocks::checkVectors(arrays[kX], arrays[kTransposed], arrays[kTransposedScales], kDown * 128,
                       kAcross * 128, /*transposed=*/true, difference);
}
