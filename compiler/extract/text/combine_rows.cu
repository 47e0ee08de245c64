// Checks some columns of combine_rows: a token's result is the sum of weight x row of its choices.

static void check(host::Difference &difference) {
  experts::draw();
  const int64_t choices = kTokens * kChosen;
  const std::vector<int64_t> rows = experts::drawRows(arrays[kPlaces], kHeld, choices),
                             places = experts::placesOf(rows, choices);
  experts::send(arrays[kPlaces], places);
  for (int64_t r = 0; r < kHeld; ++r)
    if (rows[size_t(r)] < 0)
      experts::forget(arrays[kY], r, kColumns);
  experts::compute();

  host::Expected out;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t column : host::sample(kColumns, 32)) {
      double sum = 0;
      for (int64_t c = t * kChosen; c < (t + 1) * kChosen; ++c)
        if (places[size_t(c)] >= 0)
          sum += arrays[kWeights].at(c) * arrays[kY].at(places[size_t(c)] * kColumns + column);
      out.add(t * kColumns + column, sum);
    }
  out.compare(arrays[kOut], difference);
}
