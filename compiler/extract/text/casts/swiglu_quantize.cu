// Runs the kernel that rounds SwiGLU to 8-bit floats along rows and columns, and compares some of each.

static void check(host::Difference &difference) {
  constexpr int64_t kWidth = kAcross * 128;
  experts::draw();
  blocks::spread(arrays[kGu], 2 * kWidth);
  experts::compute();
  blocks::checkBothWays(
      [](int64_t row, int64_t column) {
        const double g = arrays[kGu].at(row * 2 * kWidth + column);
        const double a =
            g / (1 + std::exp(-g)) * arrays[kGu].at(row * 2 * kWidth + kWidth + column);
        return blocks::computed(a, a, arrays[kGu]);
      },
      kDown * 128, kWidth, arrays[kCodes], arrays[kScales], arrays[kTransposed],
      arrays[kTransposedScales], difference);
}
