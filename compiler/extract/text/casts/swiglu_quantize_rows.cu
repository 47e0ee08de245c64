// Runs the kernel that rounds SwiGLU to 8-bit floats along rows, and compares some rows.

static void check(host::Difference &difference) {
  constexpr int64_t kWidth = kBlocks * 128;
  experts::draw();
  blocks::spread(arrays[kGu], 2 * kWidth);
  experts::compute();
  blocks::checkVectors(blocks::swigluOf(arrays[kGu], kWidth), arrays[kCodes], arrays[kScales],
                       kRows, kWidth, /*transposed=*/false, difference);
}
