// Runs the kernel that rounds a matrix to 8-bit floats and transposes it, and compares some columns of
// each row.

static void check(host::Difference &difference) {
  experts::draw();
  arrays[kScale].set(0, 0x1p-7); // so that some of the numbers are too large for E4M3
  arrays[kScale].send();
  experts::compute();

  auto rounded = [](double x) {
    x /= 0x1p-7;
    return arrays[kCodes].type == host::Type::F8E4M3 ? host::roundE4M3(x) : host::roundE5M2(x);
  };
  host::Expected codes, transposed;
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t j : host::sample(kColumns, 32)) {
      const double value = rounded(arrays[kX].at(i * kColumns + j));
      codes.add(i * kColumns + j, value);
      transposed.add(j * kRows + i, value);
    }
  codes.compare(arrays[kCodes], difference);
  transposed.compare(arrays[kTransposed], difference);
}
