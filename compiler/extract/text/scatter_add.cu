// Checks some columns of an embedding's gradient. Ids are -1 to `vocabulary`. A row with the id -1
// or `vocabulary` adds nothing.

static void check(host::Difference &difference) {
  for (size_t i = 0; i < arrays.size(); ++i) {
    arrays[i].allocate();
    if (arrays[i].isInput || (kAccumulate && i == kD))
      arrays[i].randomise(uint32_t(i + 1), false);
  }
  const host::Array &ids = arrays[kIds], &x = arrays[kX];
  host::Array &d = arrays[kD];
  const std::vector<int64_t> columns = host::sample(kColumns, 32);
  std::vector<double> sums(size_t(kVocabulary) * columns.size());
  for (int64_t id = 0; id < kVocabulary; ++id)
    for (size_t c = 0; c < columns.size(); ++c)
      sums[size_t(id) * columns.size() + c] = kAccumulate ? d.at(id * kColumns + columns[c]) : 0;
  for (int64_t t = 0; t < kRows; ++t)
    for (size_t c = 0; c < columns.size() && ids.at(t) >= 0 && ids.at(t) < kVocabulary; ++c)
      sums[size_t(ids.at(t)) * columns.size() + c] += x.at(t * kColumns + columns[c]);

  launchAll();
  host::check(cudaDeviceSynchronize(), "kernels");
  d.fetch();
  d.tolerance = {1e-5, 1e-5};
  for (int64_t id = 0; id < kVocabulary; ++id)
    for (size_t c = 0; c < columns.size(); ++c)
      difference.compare(d, id * kColumns + columns[c], sums[size_t(id) * columns.size() + c]);
}
