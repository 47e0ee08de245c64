// Runs the kernel that rounds SwiGLU to 8-bit floats along rows and columns, and compares some of each.

static void check(host::Difference &difference) {
  constexpr int64_t kWidth = kAcross * 128;
  experts::draw();
  blocks::spread(arrays[kGu], 2 * kWidth);
  experts::compute();
  blocks::checkBothWays(blocks::swigluOf(arrays[kGu], kWidth), kDown * 128, kWidth, arrays[kCodes],
                        arrays[kScales], arrays[kTransposed], arrays[kTransposedScales],
                        difference);
}
