// Runs the kernel that rounds the gradient of SwiGLU to 8-bit floats along rows and columns, and compares
// some of each.

static void check(host::Difference &difference) {
  constexpr int64_t kWidth = kAcross * 128;
  experts::draw();
  blocks::spread(arrays[kDy], kWidth);
  experts::compute();
  blocks::checkBothWays(
      [](int64_t row, int64_t column) {
        const int64_t i = column % kWidth;
        const double g = arrays[kGu].at(row * 2 * kWidth + i), s = 1 / (1 + std::exp(-g));
        const double u = arrays[kGu].at(row * 2 * kWidth + kWidth + i);
        const double d = arrays[kDy].at(row * kWidth + i);
        // The terms of 1 + g (1 - s) can cancel.
        return column < kWidth ? blocks::computed(d * u * s * (1 + g * (1 - s)),
                                                  d * u * s * (1 + fabs(g)), arrays[kGu])
                               : blocks::computed(d * g * s, d * g * s, arrays[kGu]);
      },
      kDown * 128, 2 * kWidth, arrays[kCodes], arrays[kScales], arrays[kTransposed],
      arrays[kTransposedScales], difference);
}
