#include "runtime/device/cuda/Products.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <dlfcn.h>

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

static cudaDataType_t typeOf(plan::DType dtype) {
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
           cublasLtMatrixLayoutCreate(&made, typeOf(dtype), columns, rows, int64_t(columns)),
           text());
  return {};
}

Result<void> Product::describe(const ProductShape &described) {
  shape = described;
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
    const cudaDataType_t type = typeOf(shape.bias);
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue));
    LMC_TRY(set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, type));
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
                             {name, fmt::format("{}/lib64/{}", home ? home : "/usr/local/cuda", name),
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
  auto alignment = [&](uint32_t index) {
    const uint64_t offset = slice(index).offset();
    return static_cast<uint32_t>(offset ? std::min<uint64_t>(offset & -offset, 256) : 256);
  };
  ProductShape shape;
  shape.m = gemm.m();
  shape.n = gemm.n();
  shape.k = gemm.k();
  shape.transposeA = gemm.transpose_a();
  shape.transposeB = gemm.transpose_b();
  shape.accumulate = gemm.c() >= 0;
  shape.input = slice(gemm.a()).dtype();
  shape.output = slice(gemm.d()).dtype();
  shape.hasBias = gemm.bias() >= 0;
  if (shape.hasBias)
    shape.bias = slice(uint32_t(gemm.bias())).dtype();
  shape.alignA = alignment(gemm.a());
  shape.alignB = alignment(gemm.b());
  shape.alignD = alignment(gemm.d());
  if (command.workspace() >= 0)
    shape.workspaceBytes = slice(uint32_t(command.workspace())).bytes();
  return shape;
}

namespace {

// Memory for products that are run to try them, outside of the plan's arenas.
class Trial {
public:
  // Allocates memory for the largest of `shapes`, and fills it with zeros.
  static Result<Trial> prepare(const Driver &driver, const std::vector<ProductShape> &shapes,
                               CUstream stream) {
    Trial trial;
    uint64_t most[5] = {};
    for (const ProductShape &shape : shapes) {
      const uint64_t input = byteWidth(shape.input);
      const uint64_t bytes[5] = {shape.m * shape.k * input, shape.k * shape.n * input,
                                 shape.m * shape.n * byteWidth(shape.output),
                                 shape.hasBias ? shape.n * byteWidth(shape.bias) : 0,
                                 shape.workspaceBytes};
      for (int i = 0; i < 5; ++i)
        most[i] = std::max(most[i], (bytes[i] + 255) / 256 * 256);
    }
    uint64_t total = 0;
    for (uint64_t bytes : most)
      total += bytes;
    CUdeviceptr at = 0;
    LMC_CUDA(driver, cuMemAlloc(&at, total),
             fmt::format("allocate {} bytes to try matrix products", total));
    trial.memory = DeviceMemory(driver, at);
    LMC_CUDA(driver, cuMemsetD8Async(at, 0, total, stream), "set memory to zeros");
    trial.addresses = {at, at + most[0], at + most[0] + most[1], at + most[0] + most[1] + most[2],
                       at + total - most[4]};
    return trial;
  }

  ProductAddresses addresses;

private:
  DeviceMemory memory;
};

} // namespace

Result<void> Products::choose(const std::vector<ProductShape> &shapes, GemmChoices *,
                              CUstream stream) {
  auto trial = Trial::prepare(driver, shapes, stream);
  if (!trial)
    return trial.error();
  for (const ProductShape &shape : shapes) {
    auto &product = products[shape];
    if (product)
      continue;
    auto made = std::make_unique<Product>(*library);
    LMC_TRY(made->describe(shape));
    auto candidates = made->candidates(1);
    LMC_TRY(candidates);
    made->algorithm = candidates->front().algo;
    LMC_TRY(made->run(trial->addresses, made->algorithm, stream));
    product = std::move(made);
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
