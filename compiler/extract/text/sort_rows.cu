// Compares the sort of choices by expert with a stable sort. The checked rank has number kGroups +
// 1. If there are several groups of experts, the rank is thus in group 1, not in group 0.

static void check(host::Difference &difference) {
  experts::draw();
  const host::Array &chosen = arrays[kExperts];
  const int64_t rank = kGroups + 1, least = rank % kGroups * kCount;
  if (kRank >= 0)
    experts::send(arrays[size_t(kRank)], {rank});
  std::vector<int64_t> own, counts(kCount); // the sorted choices of the rank's group of experts
  for (int64_t choice : experts::sorted(chosen)) {
    const int64_t expert = int64_t(chosen.at(choice)) - least;
    if (expert < 0 || expert >= kCount)
      continue;
    own.push_back(choice);
    ++counts[size_t(expert)];
  }
  std::vector<int64_t> rows(size_t(kHeld), -1);
  for (int64_t r = 0; r < kHeld && kFirst + r < int64_t(own.size()); ++r)
    rows[size_t(r)] = own[size_t(kFirst + r)];
  const std::vector<int64_t> places = experts::placesOf(rows, kChoices);
  experts::compute();

  host::Expected rowsOf, placesOf, offsetsOf;
  for (int64_t r = 0; r < kHeld; ++r)
    rowsOf.add(r, double(rows[size_t(r)]));
  for (int64_t c = 0; c < kChoices; ++c)
    placesOf.add(c, double(places[size_t(c)]));
  int64_t before = 0;
  for (int64_t e = 0; e <= kCount; ++e) {
    offsetsOf.add(e, double(std::min(std::max<int64_t>(before - kFirst, 0), int64_t(kHeld))));
    before += e < kCount ? counts[size_t(e)] : 0;
  }
  offsetsOf.compare(arrays[kOffsets], difference);
  rowsOf.compare(arrays[kRows], difference);
  placesOf.compare(arrays[kPlaces], difference);
}
