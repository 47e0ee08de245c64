// Matrix products by cuBLASLt: the heuristic's first algorithm against the fastest of eight.
//
//   nvcc -O2 -std=c++17 -arch=native -I INC -I compiler/extract/text bench/gpu/gemm.cu -o gemm
//   ./gemm < SHAPES
//
// where INC/lmc is compiler/targets/cuda/device. It opens the library that LMC_CUBLASLT names, else
// libcublasLt.so.13, so that it is compiled on machines that do not have it. Each line of SHAPES is a product d = a b of
// row-major matrices as a plan has it, d += a b if ACCUMULATE is 1:
//
//   NAME M N K TRANSPOSE_A TRANSPOSE_B RESULT_DTYPE ACCUMULATE       a and b are bf16
//
// With ACCUMULATE 2, d = a b + c, where c is another matrix (the residual of a layer).
//
// The operands are standard normals: with zeros a GPU uses less power and keeps a higher clock. The
// workspace has 32 MiB. Algorithms take turns, and a time is the median of ten runs, each behind 3 ms
// of other products (compiler/extract/text/heat.cu): the clock is that of a training step. Split-K may
// only sum in f32. Prints a line of JSON per product; alone_ms is the fastest algorithm's time where each
// run waits for the one before.
//
//   ./gemm hold SECONDS WHAT < SHAPES     runs each product for so long, without a pause, on WHAT:
//                                         normals, zeros, or a FILE of bf16 values, as often as needed
#include "lmc/random.cuh"

#include "blaslt.cuh"
#include "heat.cu"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

constexpr size_t kWorkspace = size_t(32) << 20;
constexpr int kAlgorithms = 8, kWarmUps = 2, kAloneRuns = 4, kRuns = 10;

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

// Fills a matrix with what it is given: "zeros", or the bf16 values of a file, again and again.
void fill(void *to, size_t bytes, const char *what) {
  if (std::strcmp(what, "normals") == 0)
    return;
  if (std::strcmp(what, "zeros") == 0) {
    CHECK(cudaMemset(to, 0, bytes));
    return;
  }
  std::FILE *file = std::fopen(what, "rb");
  std::vector<char> values(size_t(64) << 20);
  const size_t count = file ? std::fread(values.data(), 2, values.size() / 2, file) * 2 : 0;
  if (count == 0) {
    std::fprintf(stderr, "gemm: error: %s has no values\n", what);
    std::exit(2);
  }
  std::fclose(file);
  for (size_t at = 0; at < bytes; at += count)
    CHECK(cudaMemcpy(static_cast<char *>(to) + at, values.data(), std::min(count, bytes - at),
                     cudaMemcpyHostToDevice));
}

int main(int argc, char **argv) {
  const bool holds = argc == 4 && std::strcmp(argv[1], "hold") == 0;
  if (argc != 1 && !holds) {
    std::fprintf(stderr, "gemm: error: the arguments are none, or hold SECONDS WHAT\n");
    return 2;
  }
  openLibrary();
  cublasLtHandle_t handle;
  CHECK(lt.cublasLtCreate(&handle));
  void *workspace;
  CHECK(cudaMalloc(&workspace, kWorkspace));
  cudaEvent_t events[2 * kAlgorithms];
  for (cudaEvent_t &event : events)
    CHECK(cudaEventCreate(&event));
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
    void *c = accumulate == 2 ? isF32 ? randomMatrix<float>(size_t(m) * n, 4)
                                      : randomMatrix<lmc::bf16>(size_t(m) * n, 4)
                              : d;
    if (holds) {
      fill(a, size_t(m) * k * 2, argv[3]);
      fill(b, size_t(k) * n * 2, argv[3]);
    }
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
    auto multiply = [&](int i) {
      CHECK(lt.cublasLtMatmul(handle, product, &alpha, b, bLayout, a, aLayout, &beta, c, dLayout, d,
                              dLayout, &found[i].algo, workspace, kWorkspace, nullptr));
    };
    // Returns the milliseconds of each algorithm, once each, behind products if `inHeat`; else each
    // run waits for the one before.
    auto once = [&](bool inHeat) {
      std::vector<float> times;
      for (int i = 0; i < count; ++i) {
        if (inHeat)
          host::theHeat().enqueue(3);
        CHECK(cudaEventRecord(events[2 * i]));
        multiply(i);
        CHECK(cudaEventRecord(events[2 * i + 1]));
        if (!inHeat)
          CHECK(cudaEventSynchronize(events[2 * i + 1]));
      }
      CHECK(cudaDeviceSynchronize());
      for (int i = 0; i < count; ++i) {
        times.push_back(0);
        CHECK(cudaEventElapsedTime(&times.back(), events[2 * i], events[2 * i + 1]));
      }
      return times;
    };
    auto medianOf = [](std::vector<float> all) {
      std::sort(all.begin(), all.end());
      return double(all[all.size() / 2]);
    };
    if (holds && count > 0) {
      const double milliseconds = host::millisecondsHeld(std::atof(argv[2]), [&] { multiply(0); });
      std::printf("{\"gemm\": \"%s\", \"held_ms\": %.4f, \"held_tflops\": %.1f}\n", name,
                  milliseconds, 2e-9 * m * n * k / milliseconds);
    } else if (count == 0) {
      std::printf("{\"gemm\": \"%s\", \"algorithms\": 0}\n", name);
    } else {
      std::vector<std::vector<float>> alone(static_cast<size_t>(count)), hot(alone);
      double began = host::now();
      for (int run = 0; run < kWarmUps + kAloneRuns; ++run) {
        const std::vector<float> times = once(/*inHeat=*/false);
        for (size_t i = 0; run >= kWarmUps && i < times.size(); ++i)
          alone[i].push_back(times[i]);
      }
      host::printPhase("alone", began);
      for (int i = 0; i < 100; ++i)
        host::theHeat().enqueue(3);
      began = host::now();
      for (int run = 0; run < kRuns; ++run) {
        const std::vector<float> times = once(/*inHeat=*/true);
        for (size_t i = 0; i < times.size(); ++i)
          hot[i].push_back(times[i]);
      }
      host::printPhase("heat", began);
      size_t best = 0;
      for (size_t i = 1; i < hot.size(); ++i)
        if (medianOf(hot[i]) < medianOf(hot[best]))
          best = i;
      const double first = medianOf(hot[0]), fastest = medianOf(hot[best]);
      std::printf("{\"gemm\": \"%s\", \"algorithms\": %d, \"first_ms\": %.4f, \"best_ms\": %.4f, "
                  "\"best\": %d, \"first_tflops\": %.1f, \"best_tflops\": %.1f, \"alone_ms\": %.4f}\n",
                  name, count, first, fastest, int(best), 2e-9 * m * n * k / first,
                  2e-9 * m * n * k / fastest, medianOf(alone[best]));
    }
    std::fflush(stdout);
    CHECK(lt.cublasLtMatmulPreferenceDestroy(preference));
    CHECK(lt.cublasLtMatmulDescDestroy(product));
    for (auto made : {aLayout, bLayout, dLayout})
      CHECK(lt.cublasLtMatrixLayoutDestroy(made));
    for (void *memory : {a, b, d})
      CHECK(cudaFree(memory));
    if (c != d)
      CHECK(cudaFree(c));
  }
  return 0;
}
