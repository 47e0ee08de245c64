// Checks some columns of take_rows: the row of a choice is a copy of its token's row. A row without
// a choice must not be written.

static void check(host::Difference &difference) {
  experts::draw();
  const std::vector<int64_t> choices = experts::drawRows(arrays[kRows], kHeld, kTokens * kChosen);
  experts::send(arrays[kRows], choices);
  experts::compute();

  host::Expected y;
  for (int64_t r = 0; r < kHeld; ++r)
    for (int64_t column : host::sample(kColumns, 32))
      if (choices[size_t(r)] < 0)
        y.untouched.push_back(r * kColumns + column);
      else
        y.add(r * kColumns + column,
              arrays[kX].at(choices[size_t(r)] / kChosen * kColumns + column));
  y.compare(arrays[kY], difference);
}
