// Inputs for kernels of a mixture of experts. The programs for all these kernels share this text.

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

// Returns the indices of the elements of `array`, stably sorted by the elements' values.
inline std::vector<int64_t> sorted(const host::Array &array) {
  std::vector<int64_t> choices(static_cast<size_t>(array.size()));
  for (size_t i = 0; i < choices.size(); ++i)
    choices[i] = int64_t(i);
  std::stable_sort(choices.begin(), choices.end(),
                   [&](int64_t a, int64_t b) { return array.at(a) < array.at(b); });
  return choices;
}

// Assigns a random choice (an expert of a token) to each of `held` rows. Returns the choices'
// numbers, which are below `choices`. The random values in `array` decide. If `held` is less than
// `choices`, the last eighth of the rows gets no choice (-1).
inline std::vector<int64_t> drawRows(const host::Array &array, int64_t held, int64_t choices) {
  std::vector<int64_t> rows = sorted(array);
  const int64_t step = choices / array.size(); // more than 1 if `array` has a value per row
  rows.resize(size_t(held));
  for (int64_t &choice : rows)
    choice *= step;
  if (held < choices)
    std::fill(rows.end() - (held + 7) / 8, rows.end(), -1);
  return rows;
}

// Returns, for each choice, the number of its row, or -1 if it has no row.
inline std::vector<int64_t> placesOf(const std::vector<int64_t> &rows, int64_t choices) {
  std::vector<int64_t> places(size_t(choices), -1);
  for (size_t r = 0; r < rows.size(); ++r)
    if (rows[r] >= 0)
      places[size_t(rows[r])] = int64_t(r);
  return places;
}

// Sets a row of an input to NaN, to detect kernels that wrongly read it.
inline void forget(host::Array &array, int64_t row, int64_t columns) {
  for (int64_t column = 0; column < columns; ++column)
    array.set(row * columns + column, NAN);
  array.send();
}

// Fills `array` with the first row of each expert, at random. Its last element is the number of
// rows that belong to any expert. If there are more than two experts, expert 1 has no rows. If
// there is more than one row, the last row belongs to no expert. Returns the contents of `array`.
inline std::vector<int64_t> makeOffsets(host::Array &array, int64_t rows) {
  const int64_t own = rows > 1 ? rows - 1 : rows;
  std::vector<int64_t> offsets;
  for (int64_t i = 0; i < array.size(); ++i)
    offsets.push_back(std::min(int64_t(array.at(i)), own));
  std::sort(offsets.begin(), offsets.end());
  offsets.front() = 0;
  offsets.back() = own;
  if (offsets.size() > 3)
    offsets[2] = offsets[1];
  send(array, offsets);
  return offsets;
}

// Compares y [rows, columns], whose rows experts have from `offsets` on, with sumOf(expert, row,
// column): some columns of the first, the last and some other rows of each expert. A row without an
// expert must not be written.
template <typename Sum>
void checkProducts(const std::vector<int64_t> &offsets, int64_t count, int64_t columns,
                   host::Array &found, host::Difference &difference, Sum sumOf) {
  const int64_t own = offsets.back();
  std::vector<int64_t> rows = host::sample(own, 64);
  for (int64_t first : offsets)
    for (int64_t r : {first - 1, first})
      if (r >= 0 && r < own)
        rows.push_back(r);
  host::Expected y;
  for (int64_t r : rows) {
    const int64_t expert =
        std::upper_bound(offsets.begin(), offsets.end() - 1, r) - offsets.begin() - 1;
    for (int64_t column : host::sample(columns, 64))
      y.add(r * columns + column, sumOf(expert, r, column));
  }
  for (int64_t element = own * columns; element < count * columns; ++element)
    y.untouched.push_back(element);
  y.compare(found, difference);
}

inline void compute() {
  launchAll();
  host::check(cudaDeviceSynchronize(), "kernels");
}

} // namespace experts
