// Runs the kernel of the gradients of combine_rows, and compares dy and dweights of some rows with
// their formulas in f64. Rows are sorted by a random choice among eight experts.

int main(int argc, char **argv) {
  experts::draw();
  const std::vector<int64_t> choices = experts::sorted(arrays[kRows]);
  experts::send(arrays[kRows], choices);
  if (kPlaces >= 0)
    experts::send(arrays[size_t(kPlaces)], experts::inverse(choices));
  experts::compute();

  host::Expected dy, dweights;
  for (int64_t r : host::sample(kTokens * kChosen, 4096)) {
    const int64_t choice = choices[size_t(r)];
    double sum = 0;
    for (int64_t column = 0; column < kColumns; ++column) {
      const double d = arrays[kDout].at(choice / kChosen * kColumns + column);
      sum += d * arrays[kY].at(r * kColumns + column);
      dy.add(r * kColumns + column, arrays[kWeights].at(choice) * d);
    }
    dweights.add(choice, sum);
  }
  host::Difference difference;
  dy.compare(arrays[kDy], difference);
  dweights.compare(arrays[kDweights], difference);
  return finish(difference, host::taskOf(argc, argv));
}
