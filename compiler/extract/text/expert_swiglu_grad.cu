// Runs the kernel of the gradient of SwiGLU of the rows of experts, and compares some columns of some
// rows with its formula in f64. All rows that there is room for are of an expert.

int main(int argc, char **argv) {
  experts::draw();
  experts::makeOffsets(arrays[kOffsets], kRows);
  experts::compute();

  host::Expected dx;
  for (int64_t r : host::sample(kRows, 512))
    for (int64_t column : host::sample(kColumns, 64)) {
      const int64_t first = r * 2 * kColumns + column;
      const double gate = arrays[kX].at(first), up = arrays[kX].at(first + kColumns);
      const double d = arrays[kDy].at(r * kColumns + column), s = 1 / (1 + std::exp(-gate));
      dx.add(first, d * up * s * (1 + gate * (1 - s)));
      dx.add(first + kColumns, d * gate * s);
    }
  host::Difference difference;
  dx.compare(arrays[kDx], difference);
  return finish(difference, host::taskOf(argc, argv));
}
