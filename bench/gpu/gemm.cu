// Matrix products by cuBLASLt: the heuristic's first algorithm against the fastest of eight.
//
//   nvcc -O2 -std=c++17 -arch=native -I INC bench/gpu/gemm.cu -o gemm && ./gemm < SHAPES
//
// where INC/lmc is compiler/targets/cuda/device. It opens the library that LMC_CUBLASLT names, else
// libcublasLt.so.13, so that it is compiled on machines that do not have it. Each line of SHAPES is a product d = a b of
// row-major matrices as a plan has it, d += a b if ACCUMULATE is 1:
//
//   NAME M N K TRANSPOSE_A TRANSPOSE_B RESULT_DTYPE ACCUMULATE       a and b are bf16
//
// The operands are standard normals: with zeros a GPU uses less power and keeps a higher clock. The
// workspace has 32 MiB. Algorithms take turns, and a time is the median of ten. Split-K may only
// sum in f32. Prints a line of JSON per product.
#include "lmc/random.cuh"

#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <vector>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if (int error = int(call)) {                                                                   \
      std::fprintf(stderr, "gemm: error: %s: %d\n", #call, error);                                 \
      std::exit(2);                                                                                \
    }                                                                                              \
  } while (false)

#define CUBLASLT_FUNCTIONS(FUNCTION)                                                               \
  FUNCTION(cublasLtCreate)                                                                         \
  FUNCTION(cublasLtMatmul)                                                                         \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic)                                                         \
  FUNCTION(cublasLtMatmulDescCreate)                                                               \
  FUNCTION(cublasLtMatmulDescDestroy)                                                              \
  FUNCTION(cublasLtMatmulDescSetAttribute)                                                         \
  FUNCTION(cublasLtMatmulPreferenceCreate)                                                         \
  FUNCTION(cublasLtMatmulPreferenceDestroy)                                                        \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute)                                                   \
  FUNCTION(cublasLtMatrixLayoutCreate)                                                             \
  FUNCTION(cublasLtMatrixLayoutDestroy)

// The functions of the library that is opened.
struct Library {
#define FUNCTION(name) decltype(&::name) name = nullptr;
  CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
};
Library lt;

void openLibrary() {
  const char *named = std::getenv("LMC_CUBLASLT");
  void *library = dlopen(named ? named : "libcublasLt.so.13", RTLD_NOW);
  if (!library) {
    std::fprintf(stderr, "gemm: error: cuBLASLt cannot be opened: %s; LMC_CUBLASLT may name it\n",
                 dlerror());
    std::exit(2);
  }
#define FUNCTION(name)                                                                             \
  if (!(lt.name = reinterpret_cast<decltype(lt.name)>(dlsym(library, #name)))) {                   \
    std::fprintf(stderr, "gemm: error: cuBLASLt has no %s\n", #name);                              \
    std::exit(2);                                                                                  \
  }
  CUBLASLT_FUNCTIONS(FUNCTION)
#undef FUNCTION
}

constexpr size_t kWorkspace = size_t(32) << 20;
constexpr int kAlgorithms = 8, kWarmUps = 2, kRuns = 10;

template <typename T> __device__ T rounded(float x);
template <> __device__ float rounded<float>(float x) { return x; }
template <> __device__ lmc::bf16 rounded<lmc::bf16>(float x) { return lmc::toBf16(x); }

// Fills `to` with standard normals; `count` is a multiple of 4.
template <typename T> __global__ void drawNormals(T *to, size_t count, unsigned stream) {
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 4;
       i += size_t(gridDim.x) * blockDim.x) {
    double z[4];
    lmc::normals(1, stream, i, z);
    for (int j = 0; j < 4; ++j)
      to[4 * i + j] = rounded<T>(float(z[j]));
  }
}

template <typename T> void *randomMatrix(size_t count, unsigned stream) {
  T *memory;
  CHECK(cudaMalloc(&memory, count * sizeof(T)));
  drawNormals<<<1024, 256>>>(memory, count, stream);
  CHECK(cudaGetLastError());
  return memory;
}

// A row-major matrix is the transpose of a column-major one.
cublasLtMatrixLayout_t layout(cudaDataType_t type, long rows, long columns) {
  cublasLtMatrixLayout_t made;
  CHECK(lt.cublasLtMatrixLayoutCreate(&made, type, uint64_t(columns), uint64_t(rows), columns));
  return made;
}

int main() {
  openLibrary();
  cublasLtHandle_t handle;
  CHECK(lt.cublasLtCreate(&handle));
  void *workspace;
  CHECK(cudaMalloc(&workspace, kWorkspace));
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  char name[200], dtype[20];
  long m, n, k;
  int transposeA, transposeB, accumulate;
  while (std::scanf("%199s %ld %ld %ld %d %d %19s %d", name, &m, &n, &k, &transposeA, &transposeB,
                    dtype, &accumulate) == 8) {
    const bool isF32 = std::strcmp(dtype, "f32") == 0;
    const cudaDataType_t resultType = isF32 ? CUDA_R_32F : CUDA_R_16BF;
    void *a = randomMatrix<lmc::bf16>(size_t(m) * k, 1);
    void *b = randomMatrix<lmc::bf16>(size_t(k) * n, 2);
    void *d =
        isF32 ? randomMatrix<float>(size_t(m) * n, 3) : randomMatrix<lmc::bf16>(size_t(m) * n, 3);
    auto aLayout = transposeA ? layout(CUDA_R_16BF, k, m) : layout(CUDA_R_16BF, m, k);
    auto bLayout = transposeB ? layout(CUDA_R_16BF, n, k) : layout(CUDA_R_16BF, k, n);
    auto dLayout = layout(resultType, m, n);
    // In column-major terms the product is d^T = b^T a^T.
    cublasLtMatmulDesc_t product;
    CHECK(lt.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t first = transposeB ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = transposeA ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(
        lt.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first));
    CHECK(lt.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSB, &second,
                                         sizeof second));
    cublasLtMatmulPreference_t preference;
    CHECK(lt.cublasLtMatmulPreferenceCreate(&preference));
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CHECK(lt.cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspace, sizeof kWorkspace));
    CHECK(lt.cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    cublasLtMatmulHeuristicResult_t found[kAlgorithms];
    int count = 0;
    if (lt.cublasLtMatmulAlgoGetHeuristic(handle, product, bLayout, aLayout, dLayout, dLayout,
                                       preference, kAlgorithms, found,
                                       &count) != CUBLAS_STATUS_SUCCESS)
      count = 0;
    const float alpha = 1, beta = accumulate ? 1.0f : 0.0f;
    std::vector<std::vector<float>> times;
    times.resize(size_t(count));
    for (int run = 0; run < kWarmUps + kRuns; ++run)
      for (int i = 0; i < count; ++i) {
        CHECK(cudaEventRecord(begin));
        CHECK(lt.cublasLtMatmul(handle, product, &alpha, b, bLayout, a, aLayout, &beta, d, dLayout, d,
                             dLayout, &found[i].algo, workspace, kWorkspace, nullptr));
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        float milliseconds;
        CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
        if (run >= kWarmUps)
          times[size_t(i)].push_back(milliseconds);
      }
    int best = 0;
    std::vector<double> medians;
    for (std::vector<float> &all : times) {
      std::sort(all.begin(), all.end());
      medians.push_back(all[all.size() / 2]);
      if (medians.back() < medians[size_t(best)])
        best = int(medians.size()) - 1;
    }
    if (count == 0)
      std::printf("{\"gemm\": \"%s\", \"algorithms\": 0}\n", name);
    else
      std::printf("{\"gemm\": \"%s\", \"algorithms\": %d, \"first_ms\": %.4f, \"best_ms\": %.4f, "
                  "\"best\": %d, \"first_tflops\": %.1f, \"best_tflops\": %.1f}\n",
                  name, count, medians[0], medians[size_t(best)], best,
                  2e-9 * m * n * k / medians[0], 2e-9 * m * n * k / medians[size_t(best)]);
    std::fflush(stdout);
    CHECK(lt.cublasLtMatmulPreferenceDestroy(preference));
    CHECK(lt.cublasLtMatmulDescDestroy(product));
    for (auto made : {aLayout, bLayout, dLayout})
      CHECK(lt.cublasLtMatrixLayoutDestroy(made));
    for (void *memory : {a, b, d})
      CHECK(cudaFree(memory));
  }
  return 0;
}
