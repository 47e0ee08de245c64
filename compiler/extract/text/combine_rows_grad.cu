// Checks the gradients of combine_rows for some rows. A row without a choice must not be written. A
// choice without a row has the gradient zero.

static void check(host::Difference &difference) {
  experts::draw();
  const std::vector<int64_t> choices = experts::drawRows(arrays[kPlaces], kHeld, kTokens * kChosen),
                             places = experts::placesOf(choices, kTokens * kChosen);
  experts::send(arrays[kRows], choices);
  experts::send(arrays[kPlaces], places);
  for (int64_t r = 0; r < kHeld; ++r)
    if (choices[size_t(r)] < 0)
      experts::forget(arrays[kY], r, kColumns);
  experts::compute();

  host::Expected dy, dweights;
  for (int64_t r : host::sample(kHeld, 4096)) {
    const int64_t choice = choices[size_t(r)];
    double sum = 0;
    for (int64_t column = 0; choice < 0 && column < kColumns; ++column)
      dy.untouched.push_back(r * kColumns + column);
    if (choice < 0)
      continue;
    for (int64_t column = 0; column < kColumns; ++column) {
      const double d = arrays[kDout].at(choice / kChosen * kColumns + column);
      sum += d * arrays[kY].at(r * kColumns + column);
      dy.add(r * kColumns + column, arrays[kWeights].at(choice) * d);
    }
    dweights.add(choice, sum);
  }
  for (int64_t choice : host::sample(kTokens * kChosen, 4096))
    if (places[size_t(choice)] < 0)
      dweights.add(choice, 0);
  dy.compare(arrays[kDy], difference);
  dweights.compare(arrays[kDweights], difference);
}
