#include "runtime/device/cuda/Products.h"

#include "ground/plan/FloatConvert.h"
#include "ground/plan/Names.h"
#include "ground/plan/Operands.h"
#include "ground/support/Places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <limits>
#include <random>
#include <span>
#include <tuple>

namespace lmc::cuda {

// cuBLASLt's functions and its handle.
struct Products::Library {
#define LMC_BLAS_FUNCTION(name) decltype(&::name) name = nullptr;
#include "runtime/device/cuda/BlasFunctions.def"
#undef LMC_BLAS_FUNCTION
  cublasLtHandle_t handle = nullptr;

  Result<void> check(cublasStatus_t status, std::string_view doing) const {
    if (status == CUBLAS_STATUS_SUCCESS)
      return {};
    return machineError("cuBLASLt cannot {}: {}", doing, cublasLtGetStatusString(status));
  }
  ~Library() {
    if (handle)
      (void)cublasLtDestroy(handle);
  }
};

// Returns the element at `address`, of type `dtype`.
static double elementAt(plan::DType dtype, const void *address) {
  double value = 0;
  convertFloats(dtype, address, plan::DType::F64, &value, 1);
  return value;
}

static cudaDataType_t dataTypeOf(plan::DType dtype) {
  return dtype == plan::DType::BF16     ? CUDA_R_16BF
         : dtype == plan::DType::F64    ? CUDA_R_64F
         : dtype == plan::DType::F8E4M3 ? CUDA_R_8F_E4M3
         : dtype == plan::DType::F8E5M2 ? CUDA_R_8F_E5M2
                                        : CUDA_R_32F;
}

class Product {
public:
  explicit Product(const Products::Library &library) : library(library) {}
  Product(const Product &) = delete;
  ~Product();

  Result<void> describe(const ProductShape &of);
  // Returns up to `most` algorithms that cuBLASLt proposes, the most promising first.
  Result<std::vector<cublasLtMatmulHeuristicResult_t>> candidates(int most) const;
  cublasStatus_t multiply(const ProductAddresses &at, const cublasLtMatmulAlgo_t &algorithm,
                          CUstream stream) const;
  Result<void> run(const ProductAddresses &at, const cublasLtMatmulAlgo_t &algorithm,
                   CUstream stream) const {
    return check(multiply(at, algorithm, stream));
  }
  Result<void> check(cublasStatus_t status) const { return library.check(status, text()); }
  // Returns true if cuBLASLt accepts the chosen algorithm on this GPU.
  bool accepts() const {
    cublasLtMatmulHeuristicResult_t checked{};
    return library.cublasLtMatmulAlgoCheck(library.handle, operation, first, second, result, result,
                                           &algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= described.workspaceBytes;
  }
  std::string text() const {
    return fmt::format("multiply [{}, {}] by [{}, {}]", described.m, described.k, described.k,
                       described.n);
  }
  const ProductShape &shape() const { return described; }

  cublasLtMatmulAlgo_t algorithm{}; // the chosen algorithm

private:
  // Sets the address of the bias. cuBLASLt's proposals depend on this address's alignment.
  cublasStatus_t pointToBias(CUdeviceptr bias) const {
    return library.cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                  &bias, sizeof bias);
  }
  // Sets the addresses of the scales of the plan's operands a and b, in cuBLASLt's order.
  cublasStatus_t pointToScales(CUdeviceptr a, CUdeviceptr b) const {
    for (auto [attribute, scale] : {std::pair(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, b),
                                    std::pair(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, a)})
      if (const cublasStatus_t set =
              library.cublasLtMatmulDescSetAttribute(operation, attribute, &scale, sizeof scale);
          set != CUBLAS_STATUS_SUCCESS)
        return set;
    return CUBLAS_STATUS_SUCCESS;
  }
  Result<void> layout(cublasLtMatrixLayout_t &made, plan::DType dtype, uint64_t rows,
                      uint64_t columns);

  const Products::Library &library;
  ProductShape described;
  cublasLtMatmulDesc_t operation = nullptr;
  // The layouts in cuBLASLt's order. `first` is the layout of the plan's operand b, `second` of a.
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
};

Product::~Product() {
  if (operation)
    (void)library.cublasLtMatmulDescDestroy(operation);
  for (cublasLtMatrixLayout_t made : {first, second, result})
    if (made)
      (void)library.cublasLtMatrixLayoutDestroy(made);
}

// Makes the layout of a row-major matrix without gaps.
Result<void> Product::layout(cublasLtMatrixLayout_t &made, plan::DType dtype, uint64_t rows,
                             uint64_t columns) {
  LMC_TRY(check(library.cublasLtMatrixLayoutCreate(&made, dataTypeOf(dtype), columns, rows,
                                                   int64_t(columns))));
  if (described.batch == 1)
    return {};
  const auto count = static_cast<int32_t>(described.batch);
  const auto stride = static_cast<int64_t>(rows * columns); // in elements
  LMC_TRY(check(library.cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                         &count, sizeof count)));
  return check(library.cublasLtMatrixLayoutSetAttribute(
      made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
}

Result<void> Product::describe(const ProductShape &of) {
  described = of;
  // Products of 8-bit floats add biases in bf16 (the manual of cublasLtMatmul, FP8 kernels).
  const plan::DType ofBias = described.isScaled() ? plan::DType::BF16 : described.output;
  if (described.hasBias && described.bias != ofBias)
    return userError(
        "cannot {}: cuBLASLt adds a bias in {} to a result in {}, and the plan has a bias in {}; "
        "compile the plan again: this version of lmc converts such a bias",
        text(), plan::EnumNameDType(ofBias), plan::EnumNameDType(described.output),
        plan::EnumNameDType(described.bias));
  const bool wide = described.input == plan::DType::F64;
  LMC_TRY(check(library.cublasLtMatmulDescCreate(
      &operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, wide ? CUDA_R_64F : CUDA_R_32F)));
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto &value) {
    return check(
        library.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value));
  };
  const cublasOperation_t ofFirst = described.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t ofSecond = described.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N;
  LMC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, ofFirst));
  LMC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, ofSecond));
  if (described.hasBias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = dataTypeOf(described.bias);
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
    LMC_TRY(check(pointToBias(described.alignBias)));
  }
  // cuBLASLt's proposals may depend on whether there are scales. multiply() sets their addresses.
  if (described.isScaled())
    LMC_TRY(check(pointToScales(16, 16)));
  if (described.scaling != plan::Scaling::Tensor) {
    const cublasLtMatmulMatrixScale_t rows = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    LMC_TRY(
        set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, described.scaling == plan::Scaling::Rows
                                                   ? rows
                                                   : CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F));
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, rows));
  }
  LMC_TRY(layout(first, described.inputB, described.transposeB ? described.n : described.k,
                 described.transposeB ? described.k : described.n));
  LMC_TRY(layout(second, described.input, described.transposeA ? described.k : described.m,
                 described.transposeA ? described.m : described.k));
  return layout(result, described.output, described.m, described.n);
}

Result<std::vector<cublasLtMatmulHeuristicResult_t>> Product::candidates(int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  LMC_TRY(check(library.cublasLtMatmulPreferenceCreate(&preference)));
  const std::unique_ptr<std::remove_pointer_t<cublasLtMatmulPreference_t>,
                        decltype(library.cublasLtMatmulPreferenceDestroy)>
      owned(preference, library.cublasLtMatmulPreferenceDestroy);
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto &value) {
    return check(
        library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value));
  };
  // If an algorithm computes a sum in parts, it must not round each part to bf16.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, described.workspaceBytes));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, described.alignB));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, described.alignA));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
              described.residual ? described.alignC : described.alignD));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, described.alignD));
  // A Trial may have set the address of its own bias. This address has the plan's alignment.
  if (described.hasBias)
    LMC_TRY(check(pointToBias(described.alignBias)));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      library.handle, operation, first, second, result, result, preference, most, found.data(),
      &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)
    LMC_TRY(check(status));
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [&](const cublasLtMatmulHeuristicResult_t &candidate) {
    return candidate.state != CUBLAS_STATUS_SUCCESS ||
           candidate.workspaceSize > described.workspaceBytes;
  });
  if (found.empty())
    return machineError("cuBLASLt has no algorithm to {} with {} bytes of workspace", text(),
                        described.workspaceBytes);
  return found;
}

cublasStatus_t Product::multiply(const ProductAddresses &at, const cublasLtMatmulAlgo_t &chosen,
                                 CUstream stream) const {
  if (described.hasBias)
    if (const cublasStatus_t set = pointToBias(at.bias); set != CUBLAS_STATUS_SUCCESS)
      return set;
  if (described.isScaled())
    if (const cublasStatus_t set = pointToScales(at.scaleA, at.scaleB);
        set != CUBLAS_STATUS_SUCCESS)
      return set;
  const float one = 1, beta = described.accumulate || described.residual ? 1 : 0;
  const double wideOne = 1, wideBeta = beta;
  const bool wide = described.input == plan::DType::F64;
  auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  return library.cublasLtMatmul(
      library.handle, operation, wide ? static_cast<const void *>(&wideOne) : &one, pointer(at.b),
      first, pointer(at.a), second, wide ? static_cast<const void *>(&wideBeta) : &beta,
      pointer(described.residual ? at.residual : at.d), result, pointer(at.d), result, &chosen, pointer(at.workspace),
      described.workspaceBytes, reinterpret_cast<cudaStream_t>(stream));
}

Products::Products(const Driver &driver, const Gpu &gpu, std::unique_ptr<Library> library)
    : driver(driver), gpu(gpu), library(std::move(library)) {}
Products::~Products() = default;

Result<std::unique_ptr<Products>> Products::open(const Driver &driver, const Gpu &gpu) {
  std::string problem;
  const std::string name = fmt::format("libcublasLt.so.{}", CUDA_VERSION / 1000);
  const char *home = std::getenv("CUDA_HOME");
  void *opened = openLibrary("LMC_CUBLASLT",
                             {fileOfPythonPackage("nvidia/cu13/lib/" + name), name,
                              fmt::format("{}/lib64/{}", home ? home : "/usr/local/cuda", name),
                              "/usr/local/cuda/lib64/" + name},
                             problem);
  if (!opened)
    return machineError(
        "the plan is for a GPU, and this machine has no cuBLASLt ({}); install CUDA {} "
        "or its wheel nvidia-cublas, and set LMC_CUBLASLT to {}",
        problem, CUDA_VERSION / 1000, name);
  auto library = std::make_unique<Library>();
#define LMC_BLAS_FUNCTION(name)                                                                    \
  library->name = reinterpret_cast<decltype(library->name)>(::dlsym(opened, #name));               \
  if (!library->name)                                                                              \
    return Error{"the library cuBLASLt has no function " #name ": it is not cuBLASLt, or too old", \
                 ExitCode::Failure};
#include "runtime/device/cuda/BlasFunctions.def"
#undef LMC_BLAS_FUNCTION
  LMC_TRY(library->check(library->cublasLtCreate(&library->handle), "start"));
  return std::unique_ptr<Products>(new Products(driver, gpu, std::move(library)));
}

LibraryFile Products::libraryFile() const {
  const size_t version = library->cublasLtGetVersion();
  const size_t major = version / 10000;
  return {fmt::format("{}.{}.{}", major, version / 100 % 100, version % 100),
          pathOfLibrary(reinterpret_cast<const void *>(library->cublasLtGetVersion))};
}

ProductShape Products::shapeOf(const plan::Plan &plan, const plan::Command &command,
                               const plan::Gemm &gemm) {
  auto slice = [&](uint32_t index) -> const plan::Slice & { return *plan.slices()->Get(index); };
  // Arenas start at multiples of 256 bytes, so an address is aligned as its offset is.
  auto alignment = [&](uint32_t index, uint64_t elements = 0) {
    uint64_t bits = slice(index).offset();
    if (gemm.batch() > 1) // the matrices of all products must be aligned
      bits |= elements * byteWidth(slice(index).dtype());
    return static_cast<uint32_t>(bits ? std::min<uint64_t>(bits & -bits, 16) : 16);
  };
  ProductShape shape;
  shape.batch = gemm.batch();
  shape.m = gemm.m();
  shape.n = gemm.n();
  shape.k = gemm.k();
  shape.transposeA = gemm.transpose_a();
  shape.transposeB = gemm.transpose_b();
  shape.accumulate = plan::accumulates(gemm);
  if (const int64_t residual = plan::residualOf(gemm); residual >= 0) {
    shape.residual = true;
    shape.alignC = alignment(uint32_t(residual));
  }
  shape.input = slice(gemm.a()).dtype();
  shape.inputB = slice(gemm.b()).dtype();
  shape.scaling = gemm.scaling();
  shape.output = slice(gemm.d()).dtype();
  shape.hasBias = gemm.bias() >= 0;
  if (shape.hasBias) {
    shape.bias = slice(uint32_t(gemm.bias())).dtype();
    shape.alignBias = alignment(uint32_t(gemm.bias()));
  }
  shape.alignA = alignment(gemm.a(), gemm.m() * gemm.k());
  shape.alignB = alignment(gemm.b(), gemm.k() * gemm.n());
  shape.alignD = alignment(gemm.d(), gemm.m() * gemm.n());
  if (command.workspace() >= 0)
    shape.workspaceBytes = slice(uint32_t(command.workspace())).bytes();
  return shape;
}

// Memory outside of the plan's arenas for trying products. The inputs are random, because a GPU
// multiplies zeros faster than data.
class Products::Trial {
public:
  // Allocates memory for the largest of `shapes`.
  static Result<Trial> prepare(const Driver &driver, const Gpu &gpu,
                               const std::vector<ProductShape> &shapes, CUstream stream) {
    Trial trial(driver, stream);
    uint64_t a = 0, b = 0, d = 0, bias = 0, residual = 0, workspace = 0, row = 0;
    auto most = [](uint64_t &bytes, uint64_t elements, plan::DType dtype) {
      bytes = std::max(bytes, (elements * byteWidth(dtype) + 255) / 256 * 256);
    };
    for (const ProductShape &shape : shapes) {
      most(a, shape.batch * shape.m * shape.k, shape.input);
      most(b, shape.batch * shape.k * shape.n, shape.inputB);
      most(d, shape.batch * shape.m * shape.n, shape.output);
      most(bias, shape.n, shape.bias);
      most(row, shape.n, shape.output);
      if (shape.residual)
        most(residual, shape.m * shape.n, shape.output);
      workspace = std::max(workspace, (shape.workspaceBytes + 255) / 256 * 256);
    }
    uint64_t scaleBytes = 512;
    for (const ProductShape &shape : shapes) // tiles have fewer scales than rows
      if (shape.scaling != plan::Scaling::Tensor)
        most(scaleBytes, kScaleB + std::max(shape.m, shape.n + 512) * (shape.k / 128 + 4),
             plan::DType::F32);
    const uint64_t total = a + b + d + bias + residual + workspace + scaleBytes;
    CUdeviceptr at = 0;
    LMC_TRY(gpu.requireFree(total, "to try matrix products"));
    LMC_CUDA(driver, cuMemAlloc(&at, total),
             fmt::format("allocate {} bytes to try matrix products", total));
    trial.memory = DeviceMemory(driver, at);
    const CUdeviceptr others = at + a + b + d;
    trial.addresses = {at, at + a, at + a + b, others, others + bias + residual, others + bias};
    trial.addresses.scaleA = at + total - scaleBytes;
    trial.addresses.scaleB = trial.addresses.scaleA + kScaleB * sizeof(float);
    trial.scaleBytes = scaleBytes;
    trial.inputBytes = a + b;
    trial.biasBytes = bias;
    trial.residualBytes = residual;
    LMC_TRY(allocatePinned(driver, 3 * kPatternBytes, "allocate pinned memory", trial.pattern));
    LMC_TRY(allocatePinned(driver, 3 * row, "allocate pinned memory", trial.rows));
    for (Event *event : {&trial.begin, &trial.end})
      LMC_TRY(makeEvent(driver, /*timed=*/true, *event));
    return trial;
  }

  Trial(Trial &&) = default;
  // Waits until the GPU no longer uses the memory.
  ~Trial() {
    if (memory.get())
      (void)driver->cuStreamSynchronize(stream);
  }

  // Fills all inputs with random values of type `dtype` between -1/2 and 1/2. In an operand of
  // another type of 8 bits the same bytes stand for values between -1 and 1.
  Result<void> fill(plan::DType dtype) {
    // The stream may still read the pattern of an earlier call.
    LMC_CUDA(*driver, cuStreamSynchronize(stream), "wait for the GPU");
    const uint64_t width = byteWidth(dtype);
    auto *bytes = static_cast<char *>(pattern.get());
    std::mt19937 generator(1);
    std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
    values.resize(kPatternBytes / width);
    for (double &value : values)
      value = uniform(generator);
    if (!convertFloats(plan::DType::F64, values.data(), dtype, bytes, values.size()) ||
        !convertFloats(dtype, bytes, plan::DType::F64, values.data(), values.size()))
      return machineError("only floating-point matrices can be multiplied");
    // A product of 8-bit floats adds values of bf16 or f32. Two random values of bf16 are one of
    // f32.
    const plan::DType ofAddends = width == 1 ? plan::DType::BF16 : dtype;
    convertFloats(plan::DType::F64, values.data(), ofAddends, bytes + kPatternBytes,
                  kPatternBytes / byteWidth(ofAddends));
    std::vector<double> scales(kScalePeriod);
    for (uint64_t i = 0; i < kScalePeriod; ++i)
      scales[i] = scaleAt(i);
    convertFloats(plan::DType::F64, scales.data(), plan::DType::F32, bytes + 2 * kPatternBytes,
                  scales.size());
    // The pattern has 2^17, 2^18, 2^19 or 2^20 elements. The period is the largest prime number
    // below this size.
    period = width == 8 ? 131071 : width == 4 ? 262139 : width == 2 ? 524287 : 1048573;
    for (auto [to, from, count, step] :
         {std::tuple(addresses.a, bytes, inputBytes, period * width),
          std::tuple(addresses.residual, bytes + kPatternBytes, residualBytes, residualPeriod()),
          std::tuple(addresses.bias, bytes + kPatternBytes, biasBytes, kPatternBytes),
          std::tuple(addresses.scaleA, bytes + 2 * kPatternBytes, scaleBytes,
                     kScalePeriod * sizeof(float))})
      for (uint64_t at = 0; at < count; at += step)
        LMC_CUDA(*driver, cuMemcpyHtoDAsync(to + at, from, std::min(step, count - at), stream),
                 "copy random values");
    return {};
  }

  // Runs an algorithm once, and checks 24 elements of the result. Returns the reason why the
  // algorithm cannot be used, or "". Error: the GPU failed.
  Result<std::string> tryOut(const Product &product, const cublasLtMatmulAlgo_t &algorithm) {
    const ProductShape &shape = product.shape();
    const uint64_t width = byteWidth(shape.output), rowBytes = shape.n * width;
    expect(shape);
    if (shape.accumulate)
      LMC_CUDA(*driver, cuMemsetD8Async(addresses.d, 0, shape.batch * shape.m * rowBytes, stream),
               "set memory to zeros");
    const cublasStatus_t status = product.multiply(addresses, algorithm, stream);
    const Result<void> enqueued = product.check(status);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE ||
        status == CUBLAS_STATUS_ARCH_MISMATCH)
      return enqueued.error().message;
    LMC_TRY(enqueued);
    auto *copied = static_cast<char *>(rows.get());
    for (uint64_t row = 0; row < 3; ++row)
      LMC_CUDA(*driver,
               cuMemcpyDtoHAsync(copied + row * rowBytes,
                                 addresses.d + rowsOf(shape)[row] * rowBytes, rowBytes, stream),
               "copy sums");
    LMC_CUDA(*driver, cuStreamSynchronize(stream), product.text());
    for (const Expected &element : expected) {
      const double found =
          elementAt(shape.output, copied + element.row * rowBytes + element.column * width);
      if (!(std::abs(found - element.value) <= element.allowed))
        return fmt::format(
            "cuBLASLt cannot {}: element [{}, {}] of the result is {:.9g}, and must be "
            "{:.9g}",
            product.text(), rowsOf(shape)[element.row], element.column, found, element.value);
    }
    return std::string();
  }

  // Returns the mean time of `runs` consecutive runs, in seconds.
  Result<double> secondsOf(const Product &product, const cublasLtMatmulAlgo_t &algorithm,
                           int runs) const {
    LMC_CUDA(*driver, cuEventRecord(begin.get(), stream), "time a matrix product");
    for (int i = 0; i < runs; ++i)
      LMC_TRY(run(product, algorithm));
    LMC_CUDA(*driver, cuEventRecord(end.get(), stream), "time a matrix product");
    LMC_CUDA(*driver, cuEventSynchronize(end.get()), product.text());
    float milliseconds = 0;
    LMC_CUDA(*driver, cuEventElapsedTime(&milliseconds, begin.get(), end.get()),
             "time a matrix product");
    return milliseconds * 1e-3 / runs;
  }

  Result<void> run(const Product &product, const cublasLtMatmulAlgo_t &algorithm) const {
    return product.run(addresses, algorithm, stream);
  }

private:
  Trial(const Driver &driver, CUstream stream) : driver(&driver), stream(stream) {}

  // Returns the number of bytes after which the residual repeats: a prime number of its elements.
  uint64_t residualPeriod() const { return period == 131071 ? 131071 * 8 : 262139 * 4; }

  // Returns which of the batch x m rows of d are checked.
  static std::array<uint64_t, 3> rowsOf(const ProductShape &shape) {
    const uint64_t all = shape.batch * shape.m;
    return {0, all * 5 / 8, all - 1};
  }

  // Computes `expected` for a shape.
  //
  // A sum of k terms in f32 has an error of about sqrt(k) 2^-24 times the sum of the terms'
  // absolute values. Eight times this error is allowed. Tensor cores also truncate sums of a few
  // products to f32, and these errors do not cancel. On an H100, a sum of 32768 positive products
  // of bf16 had a relative error of 1.4e-4, which is k 2^-28. Four times this error is allowed too.
  // Sums of products of 8-bit floats keep 14 bits before they are added to a sum in f32
  // (arXiv:2412.19437, section 3.5.2): eight times the last of these bits is allowed.
  void expect(const ProductShape &shape) {
    if (!expected.empty() && expectedOf == shape)
      return;
    expectedOf = shape;
    expected.clear();
    const uint64_t m = shape.m, n = shape.n, k = shape.k;
    const uint64_t firstOfB = (addresses.b - addresses.a) / byteWidth(shape.input);
    const double ofSums = shape.input == plan::DType::F64 ? 0x1p-53 : 0x1p-24;
    const double ofResult = shape.output == plan::DType::BF16 ? 0x1p-8 : ofSums;
    const double ofCuts = shape.isScaled()                   ? 0x1p-10
                          : shape.input == plan::DType::BF16 ? 4 * double(shape.k) * 0x1p-28
                                                             : 0.0;
    const char *bytes = static_cast<const char *>(pattern.get()), *random = bytes + kPatternBytes;
    auto valueOfB = [&](uint64_t element) {
      return shape.inputB == shape.input ? values[element]
                                         : elementAt(shape.inputB, bytes + element);
    };
    // Returns the product of the scales of a[i, t] and b[t, j].
    auto scaleOf = [&](uint64_t i, uint64_t j, uint64_t t) {
      if (!shape.isScaled())
        return 1.0;
      if (shape.scaling == plan::Scaling::Tensor)
        return scaleAt(0) * scaleAt(kScaleB);
      const uint64_t block = t / 128, pitch = (k / 128 + 3) / 4 * 4;
      return scaleAt(block * m + i) *
             scaleAt(kScaleB + (shape.scaling == plan::Scaling::Rows ? block * n + j
                                                                     : j / 128 * pitch + block));
    };
    std::mt19937 generator(1);
    for (uint64_t row = 0; row < 3; ++row)
      for (int sample = 0; sample < 8; ++sample) {
        const uint64_t number = rowsOf(shape)[row] / m, i = rowsOf(shape)[row] % m;
        const uint64_t j = sample == 0 ? 0 : sample == 1 ? n - 1 : generator() % n;
        double sum = 0, absolute = 0;
        auto add = [&](double term) {
          sum += term;
          absolute += std::abs(term);
        };
        for (uint64_t t = 0; t < k; ++t) {
          const uint64_t atA = number * m * k + (shape.transposeA ? t * m + i : i * k + t);
          const uint64_t atB = number * k * n + (shape.transposeB ? j * k + t : t * n + j);
          add(values[atA % period] * valueOfB((firstOfB + atB) % period) * scaleOf(i, j, t));
        }
        if (shape.hasBias) {
          const uint64_t byte = j * byteWidth(shape.bias) % kPatternBytes;
          add(elementAt(shape.bias, random + byte));
        }
        if (shape.residual) {
          const uint64_t byte = (i * n + j) * byteWidth(shape.output) % residualPeriod();
          add(elementAt(shape.output, random + byte));
        }
        const double rounding =
            (8 * std::sqrt(static_cast<double>(k)) * ofSums + ofCuts) * absolute;
        expected.push_back({row, j, sum, rounding + 2 * ofResult * std::abs(sum)});
      }
  }

  const Driver *driver;
  CUstream stream;
  DeviceMemory memory;
  Event begin, end;
  ProductAddresses addresses;
  // Random values, of which copies fill the inputs: kPatternBytes for a and b, and as many for the
  // bias and the residual. Then kScalePeriod scales.
  PinnedMemory pattern;
  PinnedMemory rows;    // three rows of a result
  static constexpr uint64_t kPatternBytes = 1 << 20;
  uint64_t inputBytes = 0, biasBytes = 0, residualBytes = 0; // inputBytes counts both a and b
  // Scales are powers of two that repeat after five. Those of b begin kScaleB elements later.
  static constexpr uint64_t kScalePeriod = 5 << 15, kScaleB = 64;
  static double scaleAt(uint64_t index) { return std::ldexp(1.0, int(index % 5) - 2); }
  uint64_t scaleBytes = 0;
  std::vector<double> values;                                // the values of the pattern
  // The elements of a and b repeat after this number of elements. It is a prime number, so that no
  // two rows are equal: an algorithm that confuses rows would otherwise pass the check.
  uint64_t period = 1;

  // An element of the result that is checked. `row` is its index in rowsOf(). `allowed` is the
  // maximum difference from `value`.
  struct Expected {
    uint64_t row, column;
    double value, allowed;
  };
  ProductShape expectedOf;
  std::vector<Expected> expected;
};

// Returns the 64 bytes of an algorithm in hexadecimal. By cuBLASLt's manual they may be stored and
// used again with the same release of the library.
static std::string hexOf(const cublasLtMatmulAlgo_t &algorithm) {
  const std::span bytes(reinterpret_cast<const unsigned char *>(&algorithm), sizeof algorithm);
  return fmt::format("{:02x}", fmt::join(bytes, ""));
}

static bool fromHex(const std::string &text, cublasLtMatmulAlgo_t &algorithm) {
  if (text.size() != 2 * sizeof algorithm)
    return false;
  auto *bytes = reinterpret_cast<unsigned char *>(&algorithm);
  for (size_t i = 0; i < sizeof algorithm; ++i) {
    const char *begin = text.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, bytes[i], 16).ptr != begin + 2)
      return false;
  }
  return true;
}

static std::string nameOf(plan::DType dtype) {
  return names::snakeCase(plan::EnumNameDType(dtype));
}

GemmKey Products::keyOf(const ProductShape &shape) const {
  const size_t version = library->cublasLtGetVersion();
  return {
      fmt::format("{}, {} multiprocessors, driver for CUDA {}.{}, cuBLASLt {}", gpu.name,
                  gpu.multiprocessors, driver.version / 1000, driver.version % 1000 / 10, version),
      fmt::format(
          "{}{}>{} {}{}x{}x{}{}{}{}{} align {}/{}/{}/{}{} workspace {}", nameOf(shape.input),
          (shape.inputB == shape.input ? "" : "*" + nameOf(shape.inputB)) +
              (shape.scaling == plan::Scaling::Tensor ? ""
               : shape.scaling == plan::Scaling::Rows ? " rows"
                                                      : " tiles"),
          nameOf(shape.output), shape.batch > 1 ? fmt::format("{} of ", shape.batch) : "", shape.m,
          shape.n, shape.k, shape.transposeA ? " a^T" : "", shape.transposeB ? " b^T" : "",
          shape.accumulate ? " +d"
          : shape.residual ? " +c"
                           : "",
          shape.hasBias ? " +bias " + nameOf(shape.bias) : "", shape.alignA, shape.alignB,
          shape.alignD, shape.alignBias, shape.residual ? fmt::format("/{}", shape.alignC) : "",
          shape.workspaceBytes)};
}

// At most kCandidates proposals are timed, each kRounds times for about kRoundSeconds. A GPU lowers
// its clock under load, and the clock affects which algorithm is fastest. So the GPU works for
// kWarmSeconds before the first timing, and for kHeatSeconds before each timing.
static constexpr int kCandidates = 8, kRounds = 3;
static constexpr double kWarmSeconds = 0.5, kHeatSeconds = 3e-3, kRoundSeconds = 2e-3;

Result<GemmChoice> Products::measure(const Product &product, Trial &trial) {
  LMC_LET(candidates, product.candidates(kCandidates));
  // The first run of a proposal also loads its code.
  const size_t proposed = candidates->size();
  std::vector<cublasLtMatmulHeuristicResult_t> good;
  for (const cublasLtMatmulHeuristicResult_t &candidate : *candidates) {
    LMC_LET(taken, tryOut(product, candidate.algo, trial));
    if (*taken)
      good.push_back(candidate);
  }
  if (good.empty())
    return Error{leftOut.back(), ExitCode::Failure};
  *candidates = std::move(good);
  for (double worked = 0; !warm && worked < kWarmSeconds;) {
    LMC_LET(seconds, trial.secondsOf(product, candidates->front().algo, 16));
    worked += std::max(16 * *seconds, 1e-4);
  }
  warm = true;
  LMC_LET(once, trial.secondsOf(product, candidates->front().algo, 1));
  const int runs = static_cast<int>(std::clamp(kRoundSeconds / std::max(*once, 1e-6), 1.0, 50.0));
  // `heater` runs before each timing. It is the largest product, which choose() times first.
  const Product &heater = hottest.product ? *hottest.product : product;
  const cublasLtMatmulAlgo_t heating =
      hottest.product ? hottest.product->algorithm : candidates->front().algo;
  const double heaterSeconds = hottest.product ? hottest.seconds : *once;
  const int before = static_cast<int>(std::clamp(kHeatSeconds / std::max(heaterSeconds, 1e-6), 1.0, 500.0));
  // All candidates run in each round, so that a disturbance of the GPU affects all of them.
  std::vector<double> best(candidates->size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < candidates->size(); ++i) {
      for (int run = 0; run < before; ++run)
        LMC_TRY(trial.run(heater, heating));
      LMC_LET(seconds, trial.secondsOf(product, (*candidates)[i].algo, runs));
      best[i] = std::min(best[i], *seconds);
    }
  const size_t fastest =
      static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  return GemmChoice{fmt::format("cuBLASLt proposal {} of {}", fastest + 1, proposed),
                    hexOf((*candidates)[fastest].algo), best[fastest]};
}

Result<bool> Products::tryOut(const Product &product, const cublasLtMatmulAlgo_t &algorithm,
                              Trial &trial) {
  LMC_LET(wrong, trial.tryOut(product, algorithm));
  if (!wrong->empty())
    leftOut.push_back("an algorithm of matrix products was left out: " + *wrong);
  return wrong->empty();
}

Result<size_t> Products::chooseFirst(Product &product, Trial &trial) {
  // The first proposal nearly always works. cuBLASLt is asked for others only if it fails.
  auto first = product.candidates(1);
  if (first) {
    product.algorithm = first->front().algo;
    LMC_LET(taken, tryOut(product, product.algorithm, trial));
    if (*taken)
      return size_t(1);
  }
  LMC_LET(candidates, product.candidates(kCandidates));
  for (size_t i = 0; i < candidates->size(); ++i) {
    const cublasLtMatmulAlgo_t &algorithm = (*candidates)[i].algo;
    if (first && std::memcmp(&algorithm, &first->front().algo, sizeof algorithm) == 0)
      continue;
    product.algorithm = algorithm;
    LMC_LET(taken, tryOut(product, algorithm, trial));
    if (*taken)
      return i + 1;
  }
  return Error{leftOut.empty() ? "cuBLASLt has no other algorithm" : leftOut.back(),
               ExitCode::Failure};
}

Result<void> Products::chooseOne(Product &product, const GemmKey &key, GemmChoices *choices,
                                 Trial &trial) {
  if (choices)
    if (auto choice = choices->find(key);
        choice && fromHex(choice->payload, product.algorithm) && product.accepts()) {
      LMC_LET(taken, tryOut(product, product.algorithm, trial));
      if (*taken) {
        if (!hottest.product && choice->seconds > 0)
          hottest = {&product, choice->seconds};
        return {};
      }
    }
  if (!choices || !choices->measures()) {
    LMC_LET(number, chooseFirst(product, trial));
    if (choices)
      choices->add(key, {fmt::format("cuBLASLt proposal {}", *number), hexOf(product.algorithm), 0},
                   0);
    return {};
  }
  const auto begin = std::chrono::steady_clock::now();
  LMC_LET(best, measure(product, trial));
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  choices->add(key, *best, spent.count());
  fromHex(best->payload, product.algorithm);
  if (!hottest.product)
    hottest = {&product, best->seconds};
  return {};
}

Result<void> Products::choose(std::vector<ProductShape> shapes, GemmChoices *choices,
                              CUstream stream) {
  // The largest product of each dtype comes first.
  std::ranges::sort(shapes, {}, [](const ProductShape &shape) {
    const double terms = double(shape.batch) * double(shape.m) * double(shape.n) * double(shape.k);
    return std::tuple(shape.input, -terms, shape);
  });
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  if (shapes.empty())
    return {};
  LMC_LET(trial, Trial::prepare(driver, gpu, shapes, stream));
  const plan::DType *filled = nullptr;
  for (const ProductShape &shape : shapes) {
    if (!filled || *filled != shape.input) {
      LMC_TRY(trial->fill(shape.input));
      hottest = {};
    }
    filled = &shape.input;
    auto product = std::make_unique<Product>(*library);
    LMC_TRY(product->describe(shape));
    LMC_TRY(chooseOne(*product, keyOf(shape), choices, *trial));
    products[shape] = std::move(product);
  }
  hottest = {};
  LMC_CUDA(driver, cuStreamSynchronize(stream), "run matrix products");
  return {};
}

Result<void> Products::run(const ProductShape &shape, const ProductAddresses &at, CUstream stream) {
  auto found = products.find(shape);
  if (found == products.end() || !found->second)
    return machineError("a product has no algorithm");
  return found->second->run(at, found->second->algorithm, stream);
}

} // namespace lmc::cuda
