// Runs the kernel that copies the rows of tokens to the rows of their choices, and compares some
// columns of each row. Rows are sorted by a random choice among eight experts.

int main(int argc, char **argv) {
  experts::draw();
  const std::vector<int64_t> choices = experts::sorted(arrays[kRows]);
  experts::send(arrays[kRows], choices);
  experts::compute();

  host::Expected y;
  for (int64_t r = 0; r < kTokens * kChosen; ++r)
    for (int64_t column : host::sample(kColumns, 32))
      y.add(r * kColumns + column,
            arrays[kX].at(choices[size_t(r)] / kChosen * kColumns + column));
  host::Difference difference;
  y.compare(arrays[kY], difference);
  return finish(difference, host::taskOf(argc, argv));
}
