// Runs the kernel of SwiGLU of the rows of experts, and compares some columns of some rows with its
// formula in f64. All rows that there is room for are of an expert.

int main(int argc, char **argv) {
  experts::draw();
  experts::makeOffsets(arrays[kOffsets], kRows);
  experts::compute();

  host::Expected y;
  for (int64_t r : host::sample(kRows, 512))
    for (int64_t column : host::sample(kColumns, 64)) {
      const double gate = arrays[kX].at(r * 2 * kColumns + column);
      const double up = arrays[kX].at(r * 2 * kColumns + kColumns + column);
      y.add(r * kColumns + column, gate / (1 + std::exp(-gate)) * up);
    }
  host::Difference difference;
  y.compare(arrays[kY], difference);
  return finish(difference, host::taskOf(argc, argv));
}
