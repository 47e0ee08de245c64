// Runs the kernel that transposes a matrix of 8-bit floats, and compares some columns of each row.

static void check(host::Difference &difference) {
  experts::draw();
  experts::compute();

  host::Expected y;
  for (int64_t j = 0; j < kColumns; ++j)
    for (int64_t i : host::sample(kRows, 32))
      y.add(j * kRows + i, arrays[kX].at(i * kColumns + j));
  y.compare(arrays[kY], difference);
}
