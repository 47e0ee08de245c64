// Runs the kernel that rounds SwiGLU to 8-bit floats along columns, and compares some columns.

static void check(host::Difference &difference) {
  constexpr int64_t kWidth = kAcross * 128;
  experts::draw();
  blocks::spread(arrays[kGu], 2 * kWidth);
  experts::compute();
  blocks::checkVectors(blocks::swigluOf(arrays[kGu], kWidth), arrays[kCodes], arrays[kScales],
                       kDown * 128, kWidth, /*transposed=*/true, difference);
}
