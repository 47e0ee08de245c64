// Runs the kernel that rounds tiles to 8-bit floats, with their transpose, and compares all of both.

static void check(host::Difference &difference) {
  experts::draw();
  blocks::spread(arrays[kX], kAcross * 128);
  experts::compute();
  blocks::checkTiles(arrays[kX], arrays[kCodes], arrays[kScales], kDown * 128, kAcross * 128, kPitch,
                     /*transposed=*/false, kRounded, difference);
  blocks::checkTiles(arrays[kX], arrays[kTransposed], arrays[kTransposedScales], kDown * 128,
                     kAcross * 128, kTransposedPitch, /*transposed=*/true, kRounded, difference);
}
