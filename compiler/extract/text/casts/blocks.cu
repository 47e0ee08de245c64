// What the programs of casts with a scale for each block share.

namespace blocks {

// Returns the smallest power of two s, 2^-126 or more, with largest / s <= the largest number.
inline double scaleOf(host::Type type, double largest) {
  const double most = type == host::Type::F8E4M3 ? 448 : 57344;
  double scale = 0x1p-126;
  while (largest / scale > most)
    scale *= 2;
  return scale;
}

inline double rounded(host::Type type, double x) {
  return type == host::Type::F8E4M3 ? host::roundE4M3(x) : host::roundE5M2(x);
}

// Makes x a matrix whose blocks have different sizes, and one of them zeros.
inline void spread(host::Array &x, int64_t columns) {
  for (int64_t i = 0; i < x.size(); ++i) {
    const int64_t block = i / columns / 128 * 3 + i % columns / 128;
    x.set(i, block % 4 == 1 ? 0 : x.at(i) * ldexp(1.0, int(block % 4) * 9 - 20));
  }
  x.send();
}

// An element of a matrix, whose error is at most `error`.
struct Element {
  double value, error = 0;
};

// Checks a cast of some rows of a matrix, or with `transposed` of some columns. The matrix has `rows` x
// `columns` elements elementAt(row, column). Each scale and code must be that of numbers within the
// errors.
template <typename ElementAt>
inline void checkVectors(ElementAt elementAt, host::Array &found, host::Array &foundScales,
                         int64_t rows, int64_t columns, bool transposed,
                         host::Difference &difference) {
  const int64_t vectors = transposed ? columns : rows, count = transposed ? rows : columns;
  host::Expected codes, scales;
  found.fetch();
  foundScales.fetch();
  // Returns the one of both right values that was found, or any if none was.
  auto rightOf = [](double found, double low, double high) { return found == high ? high : low; };
  for (int64_t vector : host::sample(vectors, 64))
    for (int64_t block = 0; block < count / 128; ++block) {
      Element elements[128];
      double least = 0, most = 0; // bounds of the largest
      for (int64_t i = 0; i < 128; ++i) {
        const int64_t place = block * 128 + i;
        elements[i] = transposed ? elementAt(place, vector) : elementAt(vector, place);
        least = fmax(least, fabs(elements[i].value) - elements[i].error);
        most = fmax(most, fabs(elements[i].value) + elements[i].error);
      }
      const double scale =
          rightOf(foundScales.at(block * vectors + vector), scaleOf(found.type, least),
                  scaleOf(found.type, most));
      scales.add(block * vectors + vector, scale);
      for (int64_t i = 0; i < 128; ++i) {
        const int64_t at = vector * count + block * 128 + i;
        codes.add(at, rightOf(found.at(at),
                              rounded(found.type, (elements[i].value - elements[i].error) / scale),
                              rounded(found.type, (elements[i].value + elements[i].error) / scale)));
      }
    }
  scales.compare(foundScales, difference);
  codes.compare(found, difference);
}

// The same for a matrix in memory.
inline void checkVectors(const host::Array &x, host::Array &found, host::Array &foundScales,
                         int64_t rows, int64_t columns, bool transposed,
                         host::Difference &difference) {
  checkVectors(
      [&](int64_t row, int64_t column) { return Element{x.at(row * columns + column)}; }, found,
      foundScales, rows, columns, transposed, difference);
}

// Returns `value`, computed in f32 from terms of size `terms` and rounded to the dtype of x.
inline Element computed(double value, double terms, const host::Array &x) {
  return {value, fabs(terms) * 0x1p-20 + (x.type == host::Type::BF16 ? fabs(value) * 0x1p-8 : 0)};
}

// Returns a function that returns the elements of SwiGLU of the halves, of `width` columns, of gu.
inline auto swigluOf(const host::Array &gu, int64_t width) {
  return [&gu, width](int64_t row, int64_t column) {
    const double g = gu.at(row * 2 * width + column), u = gu.at(row * 2 * width + width + column);
    const double a = g / (1 + std::exp(-g)) * u;
    return computed(a, a, gu);
  };
}

// Returns a function that returns the elements of the RMS norm of x, with rows of `columns` elements.
template <typename ReciprocalOf>
inline auto normOf(const host::Array &x, const host::Array &weight, int64_t columns,
                   ReciprocalOf reciprocalOf) {
  return [&x, &weight, columns, reciprocalOf](int64_t row, int64_t column) {
    const double y = x.at(row * columns + column) * reciprocalOf(row) * weight.at(column);
    return computed(y, y, x);
  };
}

// Checks a cast of rows and of columns.
template <typename ElementAt>
inline void checkBothWays(ElementAt elementAt, int64_t rows, int64_t columns, host::Array &codes,
                          host::Array &scales, host::Array &transposed,
                          host::Array &transposedScales, host::Difference &difference) {
  checkVectors(elementAt, codes, scales, rows, columns, false, difference);
  checkVectors(elementAt, transposed, transposedScales, rows, columns, true, difference);
}

// Checks a cast of the tiles of x, or of x rounded to bf16 (`rounded`). x has `rows` x `columns` elements,
// and the result, that of its transpose with `transposed`, has rows of `pitch` scales.
inline void checkTiles(const host::Array &x, host::Array &found, host::Array &foundScales,
                       int64_t rows, int64_t columns, int64_t pitch, bool transposed,
                       bool rounded, host::Difference &difference) {
  const int64_t down = (transposed ? columns : rows) / 128,
                across = (transposed ? rows : columns) / 128;
  host::Expected codes, scales;
  for (int64_t tile = 0; tile < down * pitch; ++tile) {
    if (tile % pitch >= across) {
      scales.add(tile, 1);
      continue;
    }
    const int64_t row = tile / pitch * 128, column = tile % pitch * 128;
    auto at = [&](int64_t i, int64_t j) {
      const double value = transposed ? x.at((column + j) * columns + row + i)
                                      : x.at((row + i) * columns + column + j);
      return rounded ? host::roundBf16(value) : value;
    };
    double largest = 0;
    for (int64_t i = 0; i < 128; ++i)
      for (int64_t j = 0; j < 128; ++j)
        largest = fmax(largest, fabs(at(i, j)));
    const double scale = scaleOf(found.type, largest);
    scales.add(tile, scale);
    for (int64_t i = 0; i < 128; ++i)
      for (int64_t j : host::sample(128, 16))
        codes.add((row + i) * across * 128 + column + j,
                  blocks::rounded(found.type, at(i, j) / scale));
  }
  codes.compare(found, difference);
  scales.compare(foundScales, difference);
}

} // namespace blocks
