// Compares the initial values that a kernel writes with those of the CPU's runtime.

// Has the same layout as lmc::InitializerRecord in the device library.
struct Record {
  uint64_t first, elements, seed, stream;
  double value;
};

static double rounded(host::Type type, double x) {
  return type == host::Type::F64 ? x : type == host::Type::F32 ? float(x) : host::roundBf16(x);
}

static void check(host::Difference &difference) {
  host::Array &how = arrays[kHow], &out = arrays[kOut];
  for (host::Array &array : arrays)
    array.allocate();
  if (kSource >= 0)
    arrays[size_t(kSource)].randomise(1, false);
  const Record record{0, uint64_t(out.size()), kSeed, kStream, kValue};
  how.bytes.resize(how.byteCount());
  std::memcpy(how.bytes.data(), &record, sizeof(record));
  how.send();
  launchAll();
  host::check(cudaDeviceSynchronize(), "kernel");
  out.fetch();

  for (int64_t i : host::sample(out.size(), 1 << 18))
    difference.compare(out, i, rounded(out.type, expected(i)));
}
