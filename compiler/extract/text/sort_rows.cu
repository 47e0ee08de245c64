// Runs the kernels that sort choices by expert, and compares all results with a stable sort.

int main(int argc, char **argv) {
  experts::draw();
  const host::Array &chosen = arrays[kExperts];
  const std::vector<int64_t> order = experts::sorted(chosen), places = experts::inverse(order);
  std::vector<int64_t> counts(kCount);
  for (int64_t c = 0; c < kChoices; ++c)
    ++counts[size_t(chosen.at(c))];
  experts::compute();

  host::Expected rowsOf, placesOf, offsetsOf;
  for (int64_t i = 0; i < kChoices; ++i) {
    rowsOf.add(i, double(order[size_t(i)]));
    placesOf.add(i, double(places[size_t(i)]));
  }
  int64_t first = 0;
  for (int64_t e = 0; e <= kCount; ++e) {
    offsetsOf.add(e, double(first));
    first += e < kCount ? counts[size_t(e)] : 0;
  }
  host::Difference difference;
  offsetsOf.compare(arrays[kOffsets], difference);
  rowsOf.compare(arrays[kRows], difference);
  placesOf.compare(arrays[kPlaces], difference);
  return finish(difference, host::taskOf(argc, argv));
}
