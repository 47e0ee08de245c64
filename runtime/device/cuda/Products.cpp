#include "runtime/device/cuda/Products.h"

#include "runtime/plan/FloatConvert.h"
#include "runtime/support/Places.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <dlfcn.h>
#include <limits>
#include <random>
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
    return Error{fmt::format("cuBLASLt cannot {}: {}", doing, cublasLtGetStatusString(status)),
                 ExitCode::Failure};
  }
  ~Library() {
    if (handle)
      (void)cublasLtDestroy(handle);
  }
};

#define LMC_BLAS(library, call, doing) LMC_TRY((library).check((library).call, doing))

static cudaDataType_t dataTypeOf(plan::DType dtype) {
  switch (dtype) {
  case plan::DType::BF16:
    return CUDA_R_16BF;
  case plan::DType::F64:
    return CUDA_R_64F;
  default:
    return CUDA_R_32F;
  }
}

class Product {
public:
  explicit Product(const Products::Library &library) : library(library) {}
  Product(const Product &) = delete;
  ~Product();

  Result<void> describe(const ProductShape &shape);
  // Returns the algorithms that cuBLASLt proposes, the most promising first.
  Result<std::vector<cublasLtMatmulHeuristicResult_t>> candidates(int most) const;
  Result<void> run(const ProductAddresses &at, const cublasLtMatmulAlgo_t &algorithm,
                   CUstream stream) const;
  // Returns true if the chosen algorithm computes this product on this GPU.
  bool accepts() const {
    cublasLtMatmulHeuristicResult_t checked{};
    return library.cublasLtMatmulAlgoCheck(library.handle, operation, first, second, result, result,
                                           &algorithm, &checked) == CUBLAS_STATUS_SUCCESS &&
           checked.workspaceSize <= shape.workspaceBytes;
  }
  std::string text() const {
    return fmt::format("multiply [{}, {}] by [{}, {}]", shape.m, shape.k, shape.k, shape.n);
  }

  cublasLtMatmulAlgo_t algorithm{}; // the chosen one

private:
  Result<void> layout(cublasLtMatrixLayout_t &made, plan::DType dtype, uint64_t rows,
                      uint64_t columns);

  const Products::Library &library;
  ProductShape shape;
  cublasLtMatmulDesc_t operation = nullptr;
  // In cuBLASLt's order: the first matrix is the plan's b.
  cublasLtMatrixLayout_t first = nullptr, second = nullptr, result = nullptr;
};

Product::~Product() {
  if (operation)
    (void)library.cublasLtMatmulDescDestroy(operation);
  for (cublasLtMatrixLayout_t made : {first, second, result})
    if (made)
      (void)library.cublasLtMatrixLayoutDestroy(made);
}

// Describes a row-major matrix of `rows` x `columns` elements without gaps.
Result<void> Product::layout(cublasLtMatrixLayout_t &made, plan::DType dtype, uint64_t rows,
                             uint64_t columns) {
  LMC_BLAS(library,
           cublasLtMatrixLayoutCreate(&made, dataTypeOf(dtype), columns, rows, int64_t(columns)),
           text());
  if (shape.batch == 1)
    return {};
  const auto count = static_cast<int32_t>(shape.batch);
  const auto stride = static_cast<int64_t>(rows * columns); // in elements
  LMC_BLAS(library,
           cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                            sizeof count),
           text());
  LMC_BLAS(library,
           cublasLtMatrixLayoutSetAttribute(made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                            &stride, sizeof stride),
           text());
  return {};
}

Result<void> Product::describe(const ProductShape &described) {
  shape = described;
  if (shape.hasBias && shape.bias != shape.output)
    return Error{fmt::format("cannot {}: cuBLASLt adds a bias only in the result's dtype, and the "
                             "plan has a bias in {} and a result in {}; compile the plan again: this "
                             "version of lmc converts such a bias",
                             text(), plan::EnumNameDType(shape.bias),
                             plan::EnumNameDType(shape.output))};
  const bool wide = shape.input == plan::DType::F64;
  LMC_BLAS(library,
           cublasLtMatmulDescCreate(&operation, wide ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                                    wide ? CUDA_R_64F : CUDA_R_32F),
           text());
  auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto &value) {
    return library.check(
        library.cublasLtMatmulDescSetAttribute(operation, attribute, &value, sizeof value), text());
  };
  const cublasOperation_t ofFirst = shape.transposeB ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t ofSecond = shape.transposeA ? CUBLAS_OP_T : CUBLAS_OP_N;
  LMC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSA, ofFirst));
  LMC_TRY(set(CUBLASLT_MATMUL_DESC_TRANSB, ofSecond));
  if (shape.hasBias) {
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const cudaDataType_t type = dataTypeOf(shape.bias);
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
    // Algorithms are proposed for the alignment of this address; run() sets the real one.
    const CUdeviceptr aligned = shape.alignBias;
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, aligned));
  }
  LMC_TRY(layout(first, shape.input, shape.transposeB ? shape.n : shape.k,
                 shape.transposeB ? shape.k : shape.n));
  LMC_TRY(layout(second, shape.input, shape.transposeA ? shape.k : shape.m,
                 shape.transposeA ? shape.m : shape.k));
  return layout(result, shape.output, shape.m, shape.n);
}

Result<std::vector<cublasLtMatmulHeuristicResult_t>> Product::candidates(int most) const {
  cublasLtMatmulPreference_t preference = nullptr;
  LMC_BLAS(library, cublasLtMatmulPreferenceCreate(&preference), text());
  struct Destroy {
    const Products::Library &library;
    cublasLtMatmulPreference_t preference;
    ~Destroy() { (void)library.cublasLtMatmulPreferenceDestroy(preference); }
  } destroy{library, preference};
  auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto &value) {
    return library.check(library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value,
                                                                      sizeof value),
                         text());
  };
  // Sums of split-K are added in the compute type: the other schemes round each part to bf16.
  const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, shape.workspaceBytes));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, shape.alignB));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, shape.alignA));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, shape.alignD));
  LMC_TRY(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, shape.alignD));
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(most));
  int count = 0;
  const cublasStatus_t status = library.cublasLtMatmulAlgoGetHeuristic(
      library.handle, operation, first, second, result, result, preference, most, found.data(),
      &count);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED)
    LMC_TRY(library.check(status, text()));
  found.resize(static_cast<size_t>(count));
  std::erase_if(found, [&](const cublasLtMatmulHeuristicResult_t &candidate) {
    return candidate.state != CUBLAS_STATUS_SUCCESS ||
           candidate.workspaceSize > shape.workspaceBytes;
  });
  if (found.empty())
    return Error{fmt::format("cuBLASLt has no algorithm to {} with {} bytes of workspace", text(),
                             shape.workspaceBytes),
                 ExitCode::Failure};
  return found;
}

Result<void> Product::run(const ProductAddresses &at, const cublasLtMatmulAlgo_t &chosen,
                          CUstream stream) const {
  if (shape.hasBias)
    LMC_BLAS(library,
             cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &at.bias,
                                            sizeof at.bias),
             text());
  const float one = 1, beta = shape.accumulate ? 1 : 0;
  const double wideOne = 1, wideBeta = beta;
  const bool wide = shape.input == plan::DType::F64;
  auto pointer = [](CUdeviceptr address) { return reinterpret_cast<void *>(address); };
  LMC_BLAS(library,
           cublasLtMatmul(library.handle, operation,
                          wide ? static_cast<const void *>(&wideOne) : &one, pointer(at.b), first,
                          pointer(at.a), second,
                          wide ? static_cast<const void *>(&wideBeta) : &beta, pointer(at.d),
                          result, pointer(at.d), result, &chosen, pointer(at.workspace),
                          shape.workspaceBytes, reinterpret_cast<cudaStream_t>(stream)),
           text());
  return {};
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
    return Error{fmt::format("the plan is for a GPU, and this machine has no cuBLASLt ({}); install "
                             "CUDA {} or its wheel nvidia-cublas, and set LMC_CUBLASLT to {}",
                             problem, CUDA_VERSION / 1000, name),
                 ExitCode::Failure};
  auto library = std::make_unique<Library>();
#define LMC_BLAS_FUNCTION(name)                                                                    \
  library->name = reinterpret_cast<decltype(library->name)>(::dlsym(opened, #name));               \
  if (!library->name)                                                                              \
    return Error{"the library cuBLASLt has no function " #name ": it is not cuBLASLt, or too old", \
                 ExitCode::Failure};
#include "runtime/device/cuda/BlasFunctions.def"
#undef LMC_BLAS_FUNCTION
  LMC_BLAS(*library, cublasLtCreate(&library->handle), "start");
  return std::unique_ptr<Products>(new Products(driver, gpu, std::move(library)));
}

ProductShape Products::shapeOf(const plan::Plan &plan, const plan::Command &command,
                               const plan::Gemm &gemm) {
  auto slice = [&](uint32_t index) -> const plan::Slice & { return *plan.slices()->Get(index); };
  // Arenas start at multiples of 256 bytes.
  auto alignment = [&](uint32_t index, uint64_t elements = 0) {
    uint64_t bits = slice(index).offset();
    if (gemm.batch() > 1) // where the next matrices lie
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
  shape.accumulate = gemm.c() >= 0;
  shape.input = slice(gemm.a()).dtype();
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

// Memory for products that are run to try them, outside of the plan's arenas. The inputs are random:
// a GPU that multiplies zeros draws less power and runs faster than one that multiplies data.
class Products::Trial {
public:
  // Allocates memory for the largest of `shapes`.
  static Result<Trial> prepare(const Driver &driver, const Gpu &gpu,
                               const std::vector<ProductShape> &shapes, CUstream stream);
  // Fills the inputs with random values of type `dtype` between -1/2 and 1/2, and d with zeros.
  Result<void> fill(plan::DType dtype);

  Trial(Trial &&) = default;
  // Waits until the GPU no longer uses the memory.
  ~Trial() {
    if (memory.get())
      (void)driver->cuStreamSynchronize(stream);
  }

  ProductAddresses addresses;
  Event begin, end;

private:
  Trial(const Driver &driver, CUstream stream) : driver(&driver), stream(stream) {}

  const Driver *driver;
  CUstream stream;
  DeviceMemory memory;
  PinnedMemory pattern; // random values, copied again and again
  static constexpr uint64_t kPatternBytes = 1 << 20;
  uint64_t inputBytes = 0, resultBytes = 0; // of a and b together; of d
};

Result<Products::Trial> Products::Trial::prepare(const Driver &driver, const Gpu &gpu,
                                                 const std::vector<ProductShape> &shapes,
                                                 CUstream stream) {
  Trial trial(driver, stream);
  uint64_t a = 0, b = 0, d = 0, bias = 0, workspace = 0;
  auto most = [](uint64_t &bytes, uint64_t elements, plan::DType dtype) {
    bytes = std::max(bytes, (elements * byteWidth(dtype) + 255) / 256 * 256);
  };
  for (const ProductShape &shape : shapes) {
    most(a, shape.batch * shape.m * shape.k, shape.input);
    most(b, shape.batch * shape.k * shape.n, shape.input);
    most(d, shape.batch * shape.m * shape.n, shape.output);
    most(bias, shape.n, shape.bias);
    workspace = std::max(workspace, shape.workspaceBytes);
  }
  const uint64_t total = a + b + d + bias + workspace;
  CUdeviceptr at = 0;
  LMC_TRY(gpu.requireFree(total, "to try matrix products"));
  LMC_CUDA(driver, cuMemAlloc(&at, total),
           fmt::format("allocate {} bytes to try matrix products", total));
  trial.memory = DeviceMemory(driver, at);
  trial.addresses = {at, at + a, at + a + b, at + a + b + d, at + a + b + d + bias};
  trial.inputBytes = a + b;
  trial.resultBytes = d + bias;
  void *pattern = nullptr;
  LMC_CUDA(driver, cuMemHostAlloc(&pattern, kPatternBytes, 0), "allocate pinned memory");
  trial.pattern = PinnedMemory(driver, pattern);
  for (Event *event : {&trial.begin, &trial.end}) {
    auto made = makeEvent(driver, /*timed=*/true);
    if (!made)
      return made.error();
    *event = std::move(*made);
  }
  return trial;
}

Result<void> Products::Trial::fill(plan::DType dtype) {
  // The stream may still read the pattern of an earlier call.
  LMC_CUDA(*driver, cuStreamSynchronize(stream), "wait for the GPU");
  const uint64_t width = byteWidth(dtype);
  auto *bytes = static_cast<char *>(pattern.get());
  std::mt19937 generator(1);
  std::uniform_real_distribution<float> uniform(-0.5f, 0.5f);
  std::vector<float> values(kPatternBytes / width);
  for (float &value : values)
    value = uniform(generator);
  if (!convertFloats(plan::DType::F32, values.data(), dtype, bytes, values.size()))
    return Error{"only floating-point matrices can be multiplied", ExitCode::Failure};
  for (uint64_t at = 0; at < inputBytes; at += kPatternBytes)
    LMC_CUDA(*driver,
             cuMemcpyHtoDAsync(addresses.a + at, bytes, std::min(kPatternBytes, inputBytes - at),
                               stream),
             "copy random values");
  LMC_CUDA(*driver, cuMemsetD8Async(addresses.d, 0, resultBytes, stream), "set memory to zeros");
  return {};
}

// An algorithm as 128 hexadecimal digits. cuBLASLt's manual allows to store its 64 bytes and to use
// them with the same release.
static std::string hexOf(const cublasLtMatmulAlgo_t &algorithm) {
  std::string text;
  const auto *bytes = reinterpret_cast<const unsigned char *>(&algorithm);
  for (size_t i = 0; i < sizeof algorithm; ++i)
    text += fmt::format("{:02x}", bytes[i]);
  return text;
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
  std::string name = plan::EnumNameDType(dtype);
  for (char &c : name)
    c = static_cast<char>(std::tolower(c));
  return name;
}

GemmKey Products::keyOf(const ProductShape &shape) const {
  const size_t version = library->cublasLtGetVersion();
  return {
      fmt::format("{}, {} multiprocessors, driver for CUDA {}.{}, cuBLASLt {}", gpu.name,
                  gpu.multiprocessors, driver.version / 1000, driver.version % 1000 / 10, version),
      fmt::format("{}>{} {}{}x{}x{}{}{}{}{} align {}/{}/{}/{} workspace {}", nameOf(shape.input),
                  nameOf(shape.output), shape.batch > 1 ? fmt::format("{} of ", shape.batch) : "",
                  shape.m, shape.n, shape.k, shape.transposeA ? " a^T" : "",
                  shape.transposeB ? " b^T" : "", shape.accumulate ? " +d" : "",
                  shape.hasBias ? " +bias " + nameOf(shape.bias) : "", shape.alignA, shape.alignB,
                  shape.alignD, shape.alignBias, shape.workspaceBytes)};
}

Result<double> Products::secondsOf(const Product &product, const cublasLtMatmulAlgo_t &algorithm,
                                   const Trial &trial, int runs, CUstream stream) {
  LMC_CUDA(driver, cuEventRecord(trial.begin.get(), stream), "time a matrix product");
  for (int i = 0; i < runs; ++i)
    LMC_TRY(product.run(trial.addresses, algorithm, stream));
  LMC_CUDA(driver, cuEventRecord(trial.end.get(), stream), "time a matrix product");
  LMC_CUDA(driver, cuEventSynchronize(trial.end.get()), product.text());
  float milliseconds = 0;
  LMC_CUDA(driver, cuEventElapsedTime(&milliseconds, trial.begin.get(), trial.end.get()),
           "time a matrix product");
  return milliseconds * 1e-3 / runs;
}

// The proposals of cuBLASLt that are timed, and for how long. A GPU lowers its clock under load, so
// it works for a while before anything is timed.
static constexpr int kCandidates = 8, kRounds = 3;
static constexpr double kWarmSeconds = 0.5, kRoundSeconds = 2e-3;

Result<GemmChoice> Products::measure(const Product &product, const Trial &trial, CUstream stream) {
  auto candidates = product.candidates(kCandidates);
  LMC_TRY(candidates);
  // The first run of each loads its code. cuBLASLt may propose an algorithm that then does not run.
  const size_t proposed = candidates->size();
  Result<void> ran;
  std::erase_if(*candidates, [&](const cublasLtMatmulHeuristicResult_t &candidate) {
    auto done = product.run(trial.addresses, candidate.algo, stream);
    if (!done)
      ran = done;
    return !done;
  });
  if (candidates->empty())
    return ran.error();
  for (double worked = 0; !warm && worked < kWarmSeconds;) {
    auto seconds = secondsOf(product, candidates->front().algo, trial, 16, stream);
    LMC_TRY(seconds);
    worked += std::max(16 * *seconds, 1e-4);
  }
  warm = true;
  auto once = secondsOf(product, candidates->front().algo, trial, 1, stream);
  LMC_TRY(once);
  const int runs = static_cast<int>(std::clamp(kRoundSeconds / std::max(*once, 1e-6), 1.0, 50.0));
  // The candidates take turns, so that what disturbs the GPU disturbs all of them.
  std::vector<double> best(candidates->size(), std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (size_t i = 0; i < candidates->size(); ++i) {
      auto seconds = secondsOf(product, (*candidates)[i].algo, trial, runs, stream);
      LMC_TRY(seconds);
      best[i] = std::min(best[i], *seconds);
    }
  const size_t fastest =
      static_cast<size_t>(std::min_element(best.begin(), best.end()) - best.begin());
  return GemmChoice{fmt::format("cuBLASLt proposal {} of {}", fastest + 1, proposed),
                    hexOf((*candidates)[fastest].algo), best[fastest]};
}

Result<void> Products::chooseOne(Product &product, const GemmKey &key, GemmChoices *choices,
                                 const Trial &trial, CUstream stream) {
  if (choices)
    if (auto choice = choices->find(key);
        choice && fromHex(choice->payload, product.algorithm) && product.accepts())
      return {};
  if (!choices || !choices->measures()) {
    auto candidates = product.candidates(1);
    LMC_TRY(candidates);
    product.algorithm = candidates->front().algo;
    if (choices)
      choices->add(key, {"cuBLASLt proposal 1", hexOf(product.algorithm), 0}, 0);
    return {};
  }
  const auto begin = std::chrono::steady_clock::now();
  auto best = measure(product, trial, stream);
  LMC_TRY(best);
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begin;
  choices->add(key, *best, spent.count());
  fromHex(best->payload, product.algorithm);
  return {};
}

Result<void> Products::choose(std::vector<ProductShape> shapes, GemmChoices *choices,
                              CUstream stream) {
  std::sort(shapes.begin(), shapes.end(), [](const ProductShape &a, const ProductShape &b) {
    return std::tie(a.input, a) < std::tie(b.input, b);
  });
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  auto trial = Trial::prepare(driver, gpu, shapes, stream);
  if (!trial)
    return trial.error();
  const plan::DType *filled = nullptr;
  for (const ProductShape &shape : shapes) {
    if (!filled || *filled != shape.input)
      LMC_TRY(trial->fill(shape.input));
    filled = &shape.input;
    auto product = std::make_unique<Product>(*library);
    LMC_TRY(product->describe(shape));
    LMC_TRY(chooseOne(*product, keyOf(shape), choices, *trial, stream));
    LMC_TRY(product->run(trial->addresses, product->algorithm, stream));
    products[shape] = std::move(product);
  }
  LMC_CUDA(driver, cuStreamSynchronize(stream), "run matrix products");
  return {};
}

Result<void> Products::run(const ProductShape &shape, const ProductAddresses &at, CUstream stream) {
  auto found = products.find(shape);
  if (found == products.end() || !found->second)
    return Error{"a product has no algorithm", ExitCode::Failure};
  return found->second->run(at, found->second->algorithm, stream);
}

} // namespace lmc::cuda
