// Checks some columns of take_rows_grad: a token's result is the sum of the rows of its choices.

static void check(host::Difference &difference) {
  experts::draw();
  const int64_t choices = kTokens * kChosen;
  const std::vector<int64_t> rows = experts::drawRows(arrays[kPlaces], kHeld, choices),
                             places = experts::placesOf(rows, choices);
  experts::send(arrays[kPlaces], places);
  for (int64_t r = 0; r < kHeld; ++r)
    if (rows[size_t(r)] < 0)
      experts::forget(arrays[kDy], r, kColumns);
  experts::compute();

  host::Expected dx;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t column : host::sample(kColumns, 32)) {
      double sum = 0;
      for (int64_t c = t * kChosen; c < (t + 1) * kChosen; ++c)
        if (places[size_t(c)] >= 0)
          sum += arrays[kDy].at(places[size_t(c)] * kColumns + column);
      dx.add(t * kColumns + column, sum);
    }
  dx.compare(arrays[kDx], difference);
}
