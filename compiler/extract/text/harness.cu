// The fixed part of an extracted program: tensors on host and device, random values, comparison,
// timing. Inputs are drawn on the device, because a host thread draws only about 1e8 values a
// second. Results are filled with 0xff bytes before the kernels run, so that an element that no
// kernel writes is NaN or -1.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

namespace host {

enum class Type { F32, BF16, F64, I8, I32, I64, F16, F8E4M3, F8E5M2 };

__host__ __device__ inline bool isReal(Type type) {
  return type != Type::I8 && type != Type::I32 && type != Type::I64;
}

__host__ __device__ inline int widthOf(Type type) {
  switch (type) {
  case Type::F64:
  case Type::I64:
    return 8;
  case Type::F32:
  case Type::I32:
    return 4;
  case Type::BF16:
  case Type::F16:
    return 2;
  case Type::I8:
  case Type::F8E4M3:
  case Type::F8E5M2:
    break;
  }
  return 1;
}

__host__ __device__ inline double roundBf16(double x) {
  float f = float(x);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  if (f != f)
    return x;
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  std::memcpy(&f, &bits, 4);
  return f;
}

// Returns x rounded to the nearest f16 (ties to even); from 65520 on, this is infinity.
__host__ __device__ inline double roundF16(double x) {
  const double size = fabs(x);
  if (!(size < 65520))
    return x != x ? x : copysign(double(INFINITY), x);
  const double unit = size < 0x1p-14 ? 0x1p-24 : ldexp(1.0, ilogb(size) - 10);
  return rint(x / unit) * unit;
}

// bitsOfF16 returns the bits of an f16; the other function returns the value of such bits.
__host__ __device__ inline uint16_t bitsOfF16(double x) {
  const double size = fabs(x);
  const int sign = x < 0 ? 0x8000 : 0, power = size < 0x1p-14 ? -15 : ilogb(size);
  if (!(size < 65520))
    return uint16_t(x != x ? 0x7e00 : sign | 0x7c00);
  const int mantissa = int(power == -15 ? ldexp(size, 24) : ldexp(size, 10 - power) - 1024);
  return uint16_t(sign | (power + 15) << 10 | mantissa);
}

__host__ __device__ inline double fromF16(uint16_t bits) {
  const int power = bits >> 10 & 31, mantissa = bits & 1023;
  const double size = power == 31  ? (mantissa ? double(NAN) : double(INFINITY))
                      : power == 0 ? ldexp(double(mantissa), -24)
                                   : ldexp(double(1024 + mantissa), power - 25);
  return bits & 0x8000 ? -size : size;
}

// A float of 8 bits: 1 of sign, `mantissa` of mantissa, the rest of exponent. Numbers from 2^smallest on
// are normal; `largest` is the code of the largest number.
struct Short {
  int mantissa, smallest, largest;
};
__host__ __device__ inline Short shortOf(Type type) {
  return type == Type::F8E4M3 ? Short{3, -6, 0x7e} : Short{2, -14, 0x7b};
}

// Returns the code of the nearest number (ties to even); at most the largest number.
__host__ __device__ inline uint8_t codeOf(Type type, double x) {
  const Short of = shortOf(type);
  const double size = fabs(x);
  const int sign = x < 0 ? 0x80 : 0;
  if (x != x)
    return 0x7f;
  const int power = size < ldexp(1.0, of.smallest) ? of.smallest : size < 1e30 ? ilogb(size) : 100;
  const double units = rint(ldexp(size, of.mantissa - power));
  const double code = units + double((power - of.smallest) << of.mantissa);
  return uint8_t(sign | (code < of.largest ? int(code) : of.largest));
}

__host__ __device__ inline double fromCode(Type type, uint8_t code) {
  const Short of = shortOf(type);
  const int field = (code & 0x7f) >> of.mantissa, part = code & ((1 << of.mantissa) - 1);
  if ((code & 0x7f) > of.largest)
    return type == Type::F8E5M2 && part == 0 ? (code & 0x80 ? -INFINITY : INFINITY) : NAN;
  const double size = field == 0 ? ldexp(double(part), of.smallest - of.mantissa)
                                 : ldexp(double((1 << of.mantissa) + part),
                                         field - 1 + of.smallest - of.mantissa);
  return code & 0x80 ? -size : size;
}

__host__ __device__ inline double roundE4M3(double x) {
  return fromCode(Type::F8E4M3, codeOf(Type::F8E4M3, x));
}
__host__ __device__ inline double roundE5M2(double x) {
  return fromCode(Type::F8E5M2, codeOf(Type::F8E5M2, x));
}

__host__ __device__ inline int64_t bitsOf(double x) {
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

// The ranges of random inputs: [least, bound) for integers, [-1, 1) for floats, or [0.1, 1) if
// isPositive is true.
struct Draw {
  int64_t least, bound;
  bool isPositive;
};

// Writes x, rounded to `type`, to the bytes at `to`.
__host__ __device__ inline void store(Type type, unsigned char *to, double x) {
  auto as = [&](auto value) { memcpy(to, &value, sizeof(value)); };
  switch (type) {
  case Type::F32: return as(float(x));
  case Type::F64: return as(x);
  case Type::I8: return as(int8_t(x));
  case Type::I32: return as(int32_t(x));
  case Type::I64: return as(int64_t(x));
  case Type::BF16: return as(uint16_t(uint32_t(bitsOf(roundBf16(x))) >> 16));
  case Type::F16: return as(bitsOfF16(roundF16(x)));
  case Type::F8E4M3:
  case Type::F8E5M2: return as(codeOf(type, x));
  }
}

// Returns the first word of Philox4x32-10 for the counter (element, 0) and the key (seed, 0).
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.
__host__ __device__ inline uint32_t randomWord(uint64_t element, uint32_t seed) {
  uint32_t c[4] = {uint32_t(element), uint32_t(element >> 32), 0, 0}, k0 = seed, k1 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
    const uint32_t n0 = uint32_t(p1 >> 32) ^ c[1] ^ k0, n2 = uint32_t(p0 >> 32) ^ c[3] ^ k1;
    c[0] = n0, c[1] = uint32_t(p1), c[2] = n2, c[3] = uint32_t(p0);
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  return c[0];
}

// Returns the index of an element in memory. The rows of the tensor have `run` elements each. Row
// starts are `pitch` elements apart; if `pitch` is 0, the rows are adjacent.
__host__ __device__ inline int64_t placeOf(int64_t element, int64_t run, int64_t pitch) {
  return pitch == 0 ? element : element / run * pitch + element % run;
}

// Writes random values to a tensor. A value depends only on the element's number and the seed.
__global__ void drawValues(unsigned char *to, Type type, int64_t size, int64_t run, int64_t pitch,
                           Draw draw, uint32_t seed) {
  const double low = draw.isPositive ? 0.1 : -1;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < size;
       i += int64_t(gridDim.x) * blockDim.x) {
    const uint32_t word = randomWord(uint64_t(i), seed);
    const int64_t integer = draw.least + int64_t(word % uint64_t(draw.bound - draw.least));
    const double x = isReal(type) ? low + (1 - low) * (word * 0x1p-32) : double(integer);
    store(type, to + placeOf(i, run, pitch) * widthOf(type), x);
  }
}

// The allowed error of a result a with reference b: |a - b| <= relative |b| + absolute.
// Difference::compare multiplies `absolute` by a `size` that the caller chooses.
struct Tolerance {
  double relative, absolute;
};

struct Array {
  const char *name;
  Type type;
  std::vector<int64_t> shape;
  int64_t rows, pitch; // pitch in elements; 0: rows are adjacent
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
  int64_t place(int64_t element) const { return placeOf(element, size() / rows, pitch); }
  size_t byteCount() const {
    return size_t(pitch ? rows * pitch : size()) * size_t(widthOf(type));
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
    case Type::F8E4M3:
    case Type::F8E5M2: return fromCode(type, *p);
    case Type::BF16:
    case Type::F16: break;
    }
    uint16_t half;
    std::memcpy(&half, p, 2);
    if (type == Type::F16)
      return fromF16(half);
    uint32_t bits = uint32_t(half) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }
  void set(int64_t element, double x) {
    store(type, bytes.data() + place(element) * widthOf(type), x);
  }
  // Allocates the tensor on the device; every byte, also between rows, becomes 0xff.
  void allocate() {
    check(cudaMalloc(&device, std::max<size_t>(byteCount(), 256)), name);
    poison();
  }
  void poison() { check(cudaMemset(device, 0xff, byteCount()), name); }
  void send() {
    check(cudaMemcpy(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), name);
  }
  void fetch() {
    bytes.resize(byteCount());
    check(cudaMemcpy(bytes.data(), device, bytes.size(), cudaMemcpyDeviceToHost), name);
  }

  // Draws the values on the device and fetches them. `isPositive` makes floats positive.
  void randomise(uint32_t seed, bool isPositive) {
    Draw chosen = draw;
    chosen.isPositive = isPositive || draw.isPositive;
    int64_t count = size(), run = count / rows;
    void *arguments[] = {&device, &type, &count, &run, &pitch, &chosen, &seed};
    check(cudaLaunchKernel(drawValues, dim3(1024), dim3(256), arguments, 0, nullptr), name);
    fetch();
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
  // Checks that no kernel wrote this float: it is still the NaN from Array::allocate.
  void untouched(const Array &array, int64_t element) {
    const double a = array.at(element);
    ++compared;
    if (a == a && wrong++ < 5)
      std::printf("  %s[%lld] is %.9g, but no kernel may write it\n", array.name,
                  (long long)element, a);
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

// Some elements of a result with their right values, and elements that no kernel may write.
struct Expected {
  std::vector<int64_t> elements, untouched;
  std::vector<double> values;
  std::vector<double> terms; // those whose sums the values are; may be empty

  void add(int64_t element, double value) {
    elements.push_back(element);
    values.push_back(value);
  }
  // Fetches and compares the result. For floats, the allowed absolute error is multiplied by the
  // typical size of `terms`, or of `values` if `terms` is empty.
  void compare(Array &result, Difference &difference) const {
    result.fetch();
    const double size = isReal(result.type) ? typicalSize(terms.empty() ? values : terms) : 1;
    for (size_t i = 0; i < elements.size(); ++i)
      difference.compare(result, elements[i], values[i], size);
    for (int64_t element : untouched)
      difference.untouched(result, element);
  }
};

// Returns the indices below `size` to compare. If there are few or LMC_CHECK_ALL is set, these are
// all indices. Otherwise they are the last index and about `most` others. The others have an odd
// distance, so that every position within a vector access occurs.
inline std::vector<int64_t> sample(int64_t size, int64_t most) {
  static const bool isAll = std::getenv("LMC_CHECK_ALL") != nullptr;
  std::vector<int64_t> chosen;
  const int64_t step = isAll ? 1 : std::max<int64_t>(1, size / most) | 1;
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

// What a program does after its check. Check: nothing. Bench: it times its kernels, alone and in
// heat (heat.cu). Hold: it runs them for 4 seconds, so that clock and power can be read.
enum class Task { Check, Bench, Hold };

inline Task taskOf(int argc, char **argv) {
  return argc == 1                              ? Task::Bench
         : std::strcmp(argv[1], "hold") == 0 ? Task::Hold
                                                : Task::Check;
}

// Prints the time of `run` alone and in heat, the predicted time (if it is not 0), and the rates of
// `bytes` and `flops` (if these are not 0).
template <typename Run>
void bench(const char *name, double predictedSeconds, double bytes, double flops, Run run) {
  const double began = now(), time = milliseconds(run);
  printPhase("alone", began);
  const double inHeat = millisecondsInHeat(run);
  std::printf("%s %.4f ms", name, time);
  if (predictedSeconds > 0)
    std::printf(", predicted %.4f ms", predictedSeconds * 1e3);
  if (bytes > 0)
    std::printf(", %.1f GB/s", bytes / time * 1e-6);
  if (flops > 0)
    std::printf(", %.3f TFLOP/s", flops / time * 1e-9);
  std::printf(", %.4f ms in heat\n", inHeat);
}

} // namespace host
