#include "test/hostdriver/Products.h"
#include "ground/plan/FloatConvert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace lmc::hostdriver {
namespace {

// Returns the elements of a matrix, row after row.
template <typename T> std::vector<T> elementsOf(const Matrix &matrix) {
  constexpr plan::DType wide = sizeof(T) == 8 ? plan::DType::F64 : plan::DType::F32;
  const char *from = Memory::host(matrix.address);
  std::vector<T> elements(matrix.rows * matrix.columns), column(matrix.rows);
  if (matrix.column == byteWidth(matrix.dtype)) {
    for (uint64_t i = 0; i < matrix.rows; ++i)
      convertFloats(matrix.dtype, from + i * matrix.row, wide, &elements[i * matrix.columns],
                    matrix.columns);
    return elements;
  }
  for (uint64_t j = 0; j < matrix.columns; ++j) {
    convertFloats(matrix.dtype, from + j * matrix.column, wide, column.data(), matrix.rows);
    for (uint64_t i = 0; i < matrix.rows; ++i)
      elements[i * matrix.columns + j] = column[i];
  }
  return elements;
}

// Rounds the values to the dtype.
template <typename T> void roundTo(plan::DType dtype, std::vector<T> &values) {
  if (dtype == plan::DType::BF16)
    for (T &value : values)
      value = T(fromBFloat16(toBFloat16(float(value))));
}

// Adds the products of 4 terms at a time to sums in f32, of which each loses the bits that f32
// does not have, instead of being rounded: so sum tensor cores.
void addCutProducts(std::vector<float> &sums, const std::vector<float> &a,
                    const std::vector<float> &b, uint64_t m, uint64_t n, uint64_t k) {
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t j = 0; j < n; ++j)
      for (uint64_t first = 0; first < k; first += 4) {
        double sum = double(sums[i * n + j]);
        for (uint64_t t = first; t < std::min(k, first + 4); ++t)
          sum += double(a[i * k + t]) * double(b[t * n + j]);
        float cut = float(sum);
        if (std::abs(double(cut)) > std::abs(sum))
          cut = std::nextafter(cut, 0.0f);
        sums[i * n + j] = cut;
      }
}

constexpr uint64_t kBlock = 128; // elements of a row that have a scale

// Returns the bytes of the scales of a and of b.
std::pair<uint64_t, uint64_t> scaleBytes(const PlainProduct &product) {
  const uint64_t m = product.a.rows, k = product.a.columns, n = product.b.columns;
  if (product.scaling == plan::Scaling::Tensor)
    return {sizeof(float), sizeof(float)};
  const uint64_t blocks = k / kBlock, pitch = (blocks + 3) / 4 * 4;
  return {
      blocks * m * sizeof(float),
      (product.scaling == plan::Scaling::Rows ? blocks * n : (n + kBlock - 1) / kBlock * pitch) *
          sizeof(float)};
}

// Multiplies the elements of a [m, k] and b [k, n] by their scales.
template <typename T>
void scaleBlocks(const PlainProduct &product, std::vector<T> &a, std::vector<T> &b) {
  const uint64_t m = product.a.rows, k = product.a.columns, n = product.b.columns;
  const auto *ofA = reinterpret_cast<const float *>(Memory::host(product.scaleA)),
             *ofB = reinterpret_cast<const float *>(Memory::host(product.scaleB));
  for (uint64_t i = 0; i < m; ++i)
    for (uint64_t t = 0; t < k; ++t)
      a[i * k + t] *= ofA[t / kBlock * m + i];
  const uint64_t pitch = (k / kBlock + 3) / 4 * 4;
  for (uint64_t t = 0; t < k; ++t)
    for (uint64_t j = 0; j < n; ++j)
      b[t * n + j] *= product.scaling == plan::Scaling::Rows ? ofB[t / kBlock * n + j]
                                                             : ofB[j / kBlock * pitch + t / kBlock];
}

// Computes one product of a batch.
template <typename T> void multiplyOne(const PlainProduct &product, const Algorithm &algorithm) {
  constexpr plan::DType wide = sizeof(T) == 8 ? plan::DType::F64 : plan::DType::F32;
  const uint64_t m = product.d.rows, n = product.d.columns, k = product.a.columns;
  std::vector<T> a = elementsOf<T>(product.a), b = elementsOf<T>(product.b);
  if (product.scaling != plan::Scaling::Tensor)
    scaleBlocks(product, a, b);
  const uint64_t piece = algorithm.depth   ? algorithm.depth
                         : algorithm.split ? (k + algorithm.split - 1) / algorithm.split
                                           : k;
  std::vector<T> sums(m * n), part;
  const bool isCut = hostility().cuts && byteWidth(product.a.dtype) <= 2;
  if constexpr (std::is_same_v<T, float>)
    if (isCut)
      addCutProducts(sums, a, b, m, n, k);
  for (uint64_t first = 0; first < k && !isCut; first += piece) {
    part.assign(m * n, 0);
    for (uint64_t i = 0; i < m; ++i)
      for (uint64_t t = first; t < std::min(k, first + piece); ++t)
        for (uint64_t j = 0; j < n; ++j)
          part[i * n + j] += a[i * k + t] * b[t * n + j];
    if (algorithm.roundsPieces)
      roundTo(product.d.dtype, part);
    for (uint64_t i = 0; i < m * n; ++i)
      sums[i] += part[i];
    if (algorithm.roundsPieces)
      roundTo(product.d.dtype, sums);
  }
  for (uint64_t scale : {product.scaleA, product.scaleB})
    if (scale && product.scaling == plan::Scaling::Tensor) {
      float value;
      std::memcpy(&value, Memory::host(scale), sizeof value);
      for (T &sum : sums)
        sum *= T(value);
    }
  if (product.bias) {
    const std::vector<T> bias =
        elementsOf<T>({product.bias, product.biasType, 1, n, 0, byteWidth(product.biasType)});
    for (uint64_t i = 0; i < m * n; ++i)
      sums[i] += bias[i % n];
  }
  if (product.accumulate || product.residual.address) {
    const std::vector<T> old =
        elementsOf<T>(product.accumulate ? product.d : product.residual);
    for (uint64_t i = 0; i < m * n; ++i)
      sums[i] += old[i];
  }
  if (product.mixesRows)
    std::copy_n(sums.begin(), (m - m / 2) * n, sums.begin() + int64_t(m / 2 * n));
  if (product.isWrong)
    for (uint64_t j = 0; j < n; ++j)
      sums[(m - 1) * n + j] += T(0.5);
  for (uint64_t i = 0; i < m; ++i)
    convertFloats(wide, &sums[i * n], product.d.dtype,
                  Memory::host(product.d.address) + i * product.d.row, n);
}

template <typename T> void multiply(const PlainProduct &product, const Algorithm &algorithm) {
  for (uint64_t number = 0; number < product.d.batch; ++number) {
    PlainProduct one = product;
    for (Matrix *matrix : {&one.a, &one.b, &one.d})
      *matrix = matrix->at(number);
    multiplyOne<T>(one, algorithm);
  }
}

Access bytesOf(const Matrix &matrix, bool write) {
  const uint64_t width = byteWidth(matrix.dtype);
  if (matrix.column == width)
    return {matrix.address, matrix.columns * width, write, matrix.rows, matrix.row};
  return {matrix.address, matrix.rows * width, write, matrix.columns, matrix.column};
}

// Returns the time of an algorithm: 1 ms and up to 1% more, which depends on the seed. The time is
// long, so that a program that measures for a certain time runs few products.
double microsecondsOf(const PlainProduct &product, uint32_t algorithm) {
  Random random{hostility().seed * 1000003 + product.a.rows * 31 + product.a.columns * 37 +
                product.b.columns * 41 + algorithm};
  return 1000 + 0.1 * random.below(100);
}

} // namespace

void submitProduct(CUstream stream, const PlainProduct &product, uint32_t algorithm) {
  const Algorithm &how = kAlgorithms[algorithm];
  auto work = std::make_shared<Work>();
  work->name = std::make_shared<const std::string>(driver().plan.findProduct(product));
  for (uint64_t number = 0; number < product.d.batch; ++number)
    for (const Matrix *matrix : {&product.a, &product.b, &product.d})
      work->accesses.push_back(bytesOf(matrix->at(number), matrix == &product.d));
  if (product.bias)
    work->accesses.push_back(
        {product.bias, product.d.columns * byteWidth(product.biasType), false});
  if (product.residual.address)
    work->accesses.push_back(bytesOf(product.residual, false));
  const auto [bytesOfA, bytesOfB] = scaleBytes(product);
  for (auto [scale, bytes] : {std::pair(product.scaleA, bytesOfA), {product.scaleB, bytesOfB}})
    if (scale)
      work->accesses.push_back({scale, bytes, false});
  const Access workspace{product.workspace, product.workspaceBytes, true};
  if (how.split) {
    for (const Access &operand : work->accesses)
      if (mayOverlap(operand, workspace))
        broken(kRuleBroken, "{}: the workspace overlaps an operand", *work->name);
    work->accesses.push_back(workspace);
  }
  for (const Access &access : work->accesses)
    driver().memory.require(access, false, *work->name);
  work->microseconds = microsecondsOf(product, algorithm);
  // A program may compare what an algorithm computes before it takes it.
  const bool runs = !hostility().noKernels || driver().plan.isScratch(product);
  work->execute = [product, how, workspace, runs] {
    if (!runs)
      return;
    if (how.split)
      simt::fillGarbage(Memory::host(workspace.begin), workspace.run, hostility().seed, 1);
    if (product.d.dtype == plan::DType::F64)
      multiply<double>(product, how);
    else
      multiply<float>(product, how);
  };
  driver().graphs.submit(stream, std::move(work));
}

} // namespace lmc::hostdriver
