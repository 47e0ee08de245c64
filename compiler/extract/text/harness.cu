// The fixed part of an extracted program: tensors on host and device, random values, comparison,
// timing.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <unordered_map>
#include <vector>

namespace host {

void check(cudaError_t result, const char *what) {
  if (result == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(2);
}

enum class Type { F32, BF16, F64, I8, I32, I64 };

inline bool isReal(Type type) {
  return type == Type::F32 || type == Type::BF16 || type == Type::F64;
}

inline int widthOf(Type type) {
  switch (type) {
  case Type::F64:
  case Type::I64:
    return 8;
  case Type::F32:
  case Type::I32:
    return 4;
  case Type::BF16:
    return 2;
  case Type::I8:
    break;
  }
  return 1;
}

inline double roundBf16(double x) {
  float f = float(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (f != f)
    return x;
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline int64_t bitsOf(double x) {
  float f = float(x);
  int32_t bits;
  std::memcpy(&bits, &f, 4);
  return bits;
}

inline double fromBits(int64_t x) {
  int32_t bits = int32_t(x);
  float f;
  std::memcpy(&f, &bits, 4);
  return f;
}

inline int64_t clampIndex(int64_t i, int64_t extent) {
  return std::max<int64_t>(0, std::min(i, extent - 1));
}

// The random values that an input may have: integers in [least, bound); floats in [-1, 1), or
// positive ones if isPositive.
struct Draw {
  int64_t least, bound;
  bool isPositive;
};

// The allowed error of a result a with reference b: |a - b| <= relative |b| + absolute.
// Difference::compare multiplies `absolute` by a `size` that the caller chooses.
struct Tolerance {
  double relative, absolute;
};

// A tensor. If it has a pitch, it consists of `rows` rows of equal length, whose starts are `pitch`
// elements apart.
struct Array {
  const char *name;
  Type type;
  std::vector<int64_t> shape;
  int64_t rows, pitch; // pitch 0: rows are adjacent
  bool isInput;
  Draw draw;           // range of an input's random values
  Tolerance tolerance; // allowed error of a result
  std::vector<unsigned char> bytes;
  void *device = nullptr;

  int64_t size() const {
    int64_t n = 1;
    for (int64_t extent : shape)
      n *= extent;
    return n;
  }
  int64_t place(int64_t element) const {
    if (pitch == 0)
      return element;
    const int64_t run = size() / rows;
    return element / run * pitch + element % run;
  }
  double at(int64_t element) const {
    const unsigned char *p = bytes.data() + place(element) * widthOf(type);
    auto as = [&](auto value) {
      std::memcpy(&value, p, sizeof(value));
      return double(value);
    };
    switch (type) {
    case Type::F32: return as(float());
    case Type::F64: return as(double());
    case Type::I8: return as(int8_t());
    case Type::I32: return as(int32_t());
    case Type::I64: return as(int64_t());
    case Type::BF16: break;
    }
    uint16_t half;
    std::memcpy(&half, p, 2);
    uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  void set(int64_t element, double x) {
    unsigned char *p = bytes.data() + place(element) * widthOf(type);
    auto as = [&](auto value) { std::memcpy(p, &value, sizeof(value)); };
    switch (type) {
    case Type::F32: return as(float(x));
    case Type::F64: return as(x);
    case Type::I8: return as(int8_t(x));
    case Type::I32: return as(int32_t(x));
    case Type::I64: return as(int64_t(x));
    case Type::BF16: return as(uint16_t(uint32_t(bitsOf(roundBf16(x))) >> 16));
    }
  }
  void allocate() {
    bytes.assign(size_t(pitch ? rows * pitch : size()) * size_t(widthOf(type)), 0);
    check(cudaMalloc(&device, std::max<size_t>(bytes.size(), 256)), name);
  }
  void send() {
    check(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), name);
  }
  void fetch() {
    check(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost), name);
  }

  // Draws floats from [-1, 1), or from [0.1, 1) if the functions of the kernel need positive
  // values.
  void randomise(unsigned seed, bool isPositive) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> real(isPositive || draw.isPositive ? 0.1 : -1.0, 1.0);
    const bool integers = type == Type::I8 || type == Type::I32 || type == Type::I64;
    const uint64_t values = uint64_t(draw.bound - draw.least);
    for (int64_t i = 0; i < size(); ++i)
      set(i, integers ? double(draw.least + int64_t(random() % values)) : real(random));
  }
};

// Counts and prints the differences between the results of a kernel and the reference.
struct Difference {
  int64_t compared = 0, wrong = 0, nans = 0;
  double worst = 0;
  void compare(const Array &array, int64_t element, double b, double size = 1) {
    const double a = array.at(element);
    ++compared;
    nans += b != b;
    if (a == b || (a != a && b != b))
      return;
    double off = std::fabs(a - b);
    if (array.type == Type::I8) // an 8-bit code, maybe unsigned: 127 and -128 are adjacent
      off = std::min(off, 256 - off);
    worst = std::max(worst, off);
    if (off <= array.tolerance.relative * std::fabs(b) + array.tolerance.absolute * size)
      return;
    if (wrong++ < 5)
      std::printf("  %s[%lld] is %.9g, not %.9g\n", array.name, (long long)element, a, b);
  }
  // Prints the result and returns the exit code.
  int report() const {
    std::printf("check: %lld of %lld elements wrong, largest difference %.3g%s\n", (long long)wrong,
                (long long)compared, worst, nans ? "; NaN where nothing may be" : "");
    return wrong == 0 && compared > 0 && nans == 0 ? 0 : 1;
  }
};

// Returns the median of |x| over the values that are neither zero nor NaN; 0 if there are none.
inline double typicalSize(const std::vector<double> &values) {
  std::vector<double> sizes;
  for (double x : values)
    if (x != 0 && x == x)
      sizes.push_back(std::fabs(x));
  if (sizes.empty())
    return 0;
  std::nth_element(sizes.begin(), sizes.begin() + sizes.size() / 2, sizes.end());
  return sizes[sizes.size() / 2];
}

// Returns the indices below `size` to compare: all indices if there are few, else about `most`
// evenly spread ones and the last one. The step between them is odd, so that every position in a
// vector access is included.
inline std::vector<int64_t> sample(int64_t size, int64_t most) {
  std::vector<int64_t> chosen;
  const int64_t step = std::max<int64_t>(1, size / most) | 1;
  for (int64_t i = 0; i < size; i += step)
    chosen.push_back(i);
  if (!chosen.empty() && chosen.back() != size - 1)
    chosen.push_back(size - 1);
  return chosen;
}

// Returns the milliseconds of one run: the median of 50 runs, after 5 runs that are not counted.
template <typename Run> double milliseconds(Run run) {
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "event");
  check(cudaEventCreate(&stop), "event");
  std::vector<float> times;
  for (int i = 0; i < 55; ++i) {
    check(cudaEventRecord(start), "event");
    run();
    check(cudaEventRecord(stop), "event");
    check(cudaEventSynchronize(stop), "run");
    float time = 0;
    check(cudaEventElapsedTime(&time, start, stop), "event");
    if (i >= 5)
      times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

} // namespace host
