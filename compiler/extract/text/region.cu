// Checks a kernel whose code was printed from a kernel region.

static void check(host::Difference &difference) {
  for (bool positive : {false, true}) {
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (!arrays[i].device)
        arrays[i].allocate();
      if (arrays[i].isInput)
        arrays[i].randomise(uint32_t(i + 1), positive);
      else
        arrays[i].poison();
    }
    launchAll();
    host::check(cudaDeviceSynchronize(), "kernel");
    difference = {};
    Reference reference;
    int result = 0;
    for (host::Array &array : arrays) {
      if (array.isInput)
        continue;
      // Compares only some rows, because an element's reference may need a sum over its whole row.
      const int64_t columns = array.shape.size() > 1 ? array.shape.back() : 1;
      const int64_t rows = array.size() / columns;
      host::Expected expected;
      for (int64_t row : host::sample(rows, columns > 1 ? 256 : 4096))
        for (int64_t column : host::sample(columns, 512)) {
          const int64_t element = row * columns + column;
          expected.add(element, reference.result(result, element));
        }
      expected.compare(array, difference);
      ++result;
    }
    if (difference.nans == 0)
      break; // if NaN occurs, repeats with positive inputs (for log, sqrt)
  }
}
