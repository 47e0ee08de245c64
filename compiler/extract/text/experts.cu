// What the programs for the kernels of a mixture of experts share: inputs that agree with each
// other.

namespace experts {

// Allocates all tensors, and draws the values of the inputs.
inline void draw() {
  for (size_t i = 0; i < arrays.size(); ++i) {
    arrays[i].allocate();
    if (arrays[i].isInput)
      arrays[i].randomise(uint32_t(i + 1), false);
  }
}

inline void send(host::Array &array, const std::vector<int64_t> &values) {
  for (size_t i = 0; i < values.size(); ++i)
    array.set(int64_t(i), double(values[i]));
  array.send();
}

// Returns the numbers of the choices, sorted by the values of `array`, stably.
inline std::vector<int64_t> sorted(const host::Array &array) {
  std::vector<int64_t> choices(static_cast<size_t>(array.size()));
  for (size_t i = 0; i < choices.size(); ++i)
    choices[i] = int64_t(i);
  std::stable_sort(choices.begin(), choices.end(),
                   [&](int64_t a, int64_t b) { return array.at(a) < array.at(b); });
  return choices;
}

inline std::vector<int64_t> inverse(const std::vector<int64_t> &order) {
  std::vector<int64_t> places(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    places[size_t(order[i])] = int64_t(i);
  return places;
}

// Makes random values of [0, rows] the first rows of the experts, and returns them, with `rows` as
// the last. Expert 1 of more than two has no rows.
inline std::vector<int64_t> makeOffsets(host::Array &array, int64_t rows) {
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < array.size(); ++i)
    offsets.push_back(int64_t(array.at(i)));
  std::sort(offsets.begin(), offsets.end());
  offsets.front() = 0;
  offsets.back() = rows;
  if (offsets.size() > 3)
    offsets[2] = offsets[1];
  send(array, offsets);
  return offsets;
}

inline void compute() {
  launchAll();
  host::check(cudaDeviceSynchronize(), "kernels");
}

} // namespace experts
