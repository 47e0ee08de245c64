// Products of a gated MLP with SwiGLU in their epilogues (swiglu_gemm.cuh) beside cuBLASLt and an
// elementwise kernel: of a layer of llama1b with 32,768 tokens. For sm_90a.
//
//   nvcc -O2 -std=c++17 -gencode=arch=compute_90a,code=sm_90a -DLMC_WARPGROUPS=1 -I INC
//        -I compiler/extract/text bench/gpu/products.cu -o products
//
// where INC/lmc is compiler/targets/cuda/device. Prints a line of JSON per way to compute:
//   product    gate_up (x w^T), down gradient (dy w)
//   with       nothing (the product alone), swiglu (forward, and its gradient)
//   by         cuBLASLt, or own COLUMNSxSTAGES, bands of N
// with the milliseconds alone and in heat (compiler/extract/text/heat.cu), TFLOP/s of the product in
// heat, and the relative L2 difference of the results from those by cuBLASLt. Exits with 1 if one is
// above 1%.
#if !LMC_WARPGROUPS
#include <cstdio>
int main() {
  std::fprintf(stderr, "products: error: products of warpgroups are for sm_90a\n");
  return 2;
}
#else
#include "lmc/random.cuh"
#include "lmc/swiglu_gemm.cuh"

#include "blaslt.cuh"
#include "heat.cu"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

using lmc::bf16;
using lmc::u32;

namespace {

constexpr int kRows = 32768, kHidden = 2048, kIntermediate = 8192, kUnits = 132;
constexpr size_t kWorkspace = size_t(32) << 20;

template <int Columns, int Band> struct ShapeOf {
  static constexpr int rows = kRows, inner = kHidden, columns = Columns, blocks = kUnits, band = Band;
  static constexpr bool both = true;
};

template <typename Shape, int N, int Stages>
__global__ void __launch_bounds__(256, 1) plain(const bf16 *x, const bf16 *w, bf16 *y) {
  lmc::plainGemm<Shape, N, Stages>(x, w, y);
}
template <typename Shape, int N, int Stages>
__global__ void __launch_bounds__(256, 1)
forward(const bf16 *x, const bf16 *w, bf16 *gu, bf16 *a) {
  lmc::swigluGemm<Shape, N, Stages>(x, w, gu, a);
}
template <typename Shape, int N, int Stages>
__global__ void __launch_bounds__(256, 1)
gradient(const bf16 *dy, const bf16 *w, const bf16 *gu, bf16 *dgu, bf16 *a) {
  lmc::swigluGemmGrad<Shape, N, Stages>(dy, w, gu, dgu, a);
}

// The elementwise kernels of plans: a = silu(g) u, and the gradient with a.
__global__ void elementwise(const bf16 *gu, bf16 *a) {
  lmc::swigluRows<ShapeOf<kIntermediate, 1>>(gu, a);
}
__global__ void elementwiseGradient(const bf16 *da, const bf16 *gu, bf16 *dgu, bf16 *a) {
  lmc::swigluRowsGrad<ShapeOf<kIntermediate, 1>>(da, gu, dgu, a);
}

__global__ void draw(bf16 *to, size_t count, unsigned stream, float scale) {
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count / 4;
       i += size_t(gridDim.x) * blockDim.x) {
    double z[4];
    lmc::normals(1, stream, i, z);
    for (int j = 0; j < 4; ++j)
      to[4 * i + j] = lmc::toBf16(scale * float(z[j]));
  }
}

// Adds the squares of a - b and of b to sums[0] and sums[1]; NaN stays NaN.
__global__ void compare(const bf16 *a, const bf16 *b, size_t count, double *sums) {
  double off = 0, size = 0;
  for (size_t i = size_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += size_t(gridDim.x) * blockDim.x) {
    const double x = lmc::toFloat(a[i]), y = lmc::toFloat(b[i]);
    off += (x - y) * (x - y);
    size += y * y;
  }
  atomicAdd(&sums[0], off);
  atomicAdd(&sums[1], size);
}

// Allocates a matrix, of standard normals times `scale`; with stream 0 without values.
bf16 *matrix(size_t count, unsigned stream, float scale = 1) {
  bf16 *memory;
  CHECK(cudaMalloc(&memory, count * 2));
  if (stream)
    draw<<<1024, 256>>>(memory, count, stream, scale);
  CHECK(cudaGetLastError());
  return memory;
}

// A product by cuBLASLt's fastest algorithm in heat: d [m, n] = a [m, k] b, with b [n, k] if transposed,
// else [k, n].
class Product {
public:
  Product(long m, long n, long k, bool transposed, const bf16 *a, const bf16 *b, bf16 *d)
      : a(a), b(b), d(d) {
    CHECK(lt.cublasLtCreate(&handle));
    CHECK(cudaMalloc(&workspace, kWorkspace));
    CHECK(lt.cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t first = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    CHECK(lt.cublasLtMatmulDescSetAttribute(product, CUBLASLT_MATMUL_DESC_TRANSA, &first,
                                            sizeof first));
    aLayout = layout(CUDA_R_16BF, m, k);
    bLayout = transposed ? layout(CUDA_R_16BF, n, k) : layout(CUDA_R_16BF, k, n);
    dLayout = layout(CUDA_R_16BF, m, n);
    cublasLtMatmulPreference_t preference;
    CHECK(lt.cublasLtMatmulPreferenceCreate(&preference));
    CHECK(lt.cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &kWorkspace, sizeof kWorkspace));
    const uint32_t reductions =
        CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CHECK(lt.cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions));
    cublasLtMatmulHeuristicResult_t found[8];
    int count = 0;
    CHECK(lt.cublasLtMatmulAlgoGetHeuristic(handle, product, bLayout, aLayout, dLayout, dLayout,
                                            preference, 8, found, &count));
    double best = INFINITY;
    for (int i = 0; i < count; ++i) {
      algorithm = found[i].algo;
      const double time = host::millisecondsInHeat([&] { run(); });
      if (time < best) {
        best = time;
        chosen = algorithm;
      }
    }
    algorithm = chosen;
  }
  void run() {
    const float one = 1, zero = 0;
    CHECK(lt.cublasLtMatmul(handle, product, &one, b, bLayout, a, aLayout, &zero, d, dLayout, d,
                            dLayout, &algorithm, workspace, kWorkspace, nullptr));
  }

private:
  const bf16 *a, *b;
  bf16 *d;
  cublasLtHandle_t handle;
  void *workspace;
  cublasLtMatmulDesc_t product;
  cublasLtMatrixLayout_t aLayout, bLayout, dLayout;
  cublasLtMatmulAlgo_t algorithm{}, chosen{};
};

bool good = true;
double *sums = nullptr;

// The relative L2 difference of two results.
double difference(const bf16 *a, const bf16 *b, size_t count) {
  if (!sums)
    CHECK(cudaMalloc(&sums, 2 * sizeof(double)));
  CHECK(cudaMemset(sums, 0, 2 * sizeof(double)));
  compare<<<512, 256>>>(a, b, count, sums);
  double both[2];
  CHECK(cudaMemcpy(both, sums, sizeof both, cudaMemcpyDeviceToHost));
  return std::sqrt(both[0] / both[1]);
}

template <typename Run> double alone(Run run) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    CHECK(cudaEventRecord(begin));
    run();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float time;
    CHECK(cudaEventElapsedTime(&time, begin, end));
    if (i >= 2)
      times.push_back(time);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

template <typename Run>
void report(const char *product, const char *with, const std::string &by, double flops, Run run,
            double off) {
  const double began = host::now(), single = alone(run);
  host::printPhase("alone", began);
  const double hot = host::millisecondsInHeat(run);
  good = good && off < 0.01;
  std::printf("{\"product\": \"%s\", \"with\": \"%s\", \"by\": \"%s\", \"ms\": %.4f, \"heat_ms\": %.4f, "
              "\"heat_tflops\": %.1f, \"error\": %s, \"right\": %s}\n",
              product, with, by.c_str(), single, hot, flops / hot * 1e-9,
              std::isfinite(off) ? std::to_string(off).c_str() : "null", off < 0.01 ? "true" : "false");
  std::fflush(stdout);
}

constexpr size_t kGu = size_t(2) * kRows * kIntermediate, kA = size_t(kRows) * kIntermediate;
constexpr double kForwardFlops = 2.0 * kRows * kHidden * 2 * kIntermediate;
constexpr double kGradientFlops = 2.0 * kRows * kHidden * kIntermediate;

struct Memory {
  bf16 *x, *w, *down, *dy;    // factors
  bf16 *gu, *a, *da, *dgu;    // by cuBLASLt
  bf16 *gu2, *a2, *da2, *dgu2; // by own kernels
} memory;

void poison() {
  CHECK(cudaMemset(memory.gu2, 0xff, kGu * 2));
  CHECK(cudaMemset(memory.a2, 0xff, kA * 2));
  CHECK(cudaMemset(memory.da2, 0xff, kA * 2));
  CHECK(cudaMemset(memory.dgu2, 0xff, kGu * 2));
}

template <typename Kernel> void prepare(Kernel *kernel, int bytes) {
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  poison();
}

template <int N, int Stages, int Band> void own() {
  constexpr int bytes = lmc::experts::Groups<N, Stages>::kSharedBytes;
  const std::string name = "own " + std::to_string(N) + "x" + std::to_string(Stages) + ", bands of " +
                           std::to_string(Band);
  {
    auto *kernel = plain<ShapeOf<2 * kIntermediate, Band>, N, Stages>;
    prepare(kernel, bytes);
    auto run = [&] { kernel<<<kUnits, 256, bytes>>>(memory.x, memory.w, memory.gu2); };
    run();
    CHECK(cudaGetLastError());
    report("gate_up", "nothing", name, kForwardFlops, run, difference(memory.gu2, memory.gu, kGu));
  }
  {
    auto *kernel = forward<ShapeOf<kIntermediate, Band>, N, Stages>;
    prepare(kernel, bytes);
    auto run = [&] { kernel<<<kUnits, 256, bytes>>>(memory.x, memory.w, memory.gu2, memory.a2); };
    run();
    CHECK(cudaGetLastError());
    const double off = difference(memory.gu2, memory.gu, kGu);
    report("gate_up", "swiglu", name, kForwardFlops, run,
           off != off ? off : std::max(off, difference(memory.a2, memory.a, kA)));
  }
  {
    auto *kernel = gradient<ShapeOf<kIntermediate, Band>, N, Stages>;
    prepare(kernel, bytes);
    auto run = [&] {
      kernel<<<kUnits, 256, bytes>>>(memory.dy, memory.down, memory.gu, memory.dgu2, memory.a2);
    };
    run();
    CHECK(cudaGetLastError());
    const double off = difference(memory.dgu2, memory.dgu, kGu);
    report("down gradient", "swiglu", name, kGradientFlops, run,
           off != off ? off : std::max(off, difference(memory.a2, memory.a, kA)));
  }
}

} // namespace

int main() {
  openLibrary();
  // Factors of such sizes that g, u and the gradients are about 1.
  memory = {matrix(size_t(kRows) * kHidden, 1),
            matrix(size_t(2) * kIntermediate * kHidden, 2, 1.0f / std::sqrt(float(kHidden))),
            matrix(size_t(kHidden) * kIntermediate, 3, 1.0f / std::sqrt(float(kHidden))),
            matrix(size_t(kRows) * kHidden, 4),
            matrix(kGu, 0), matrix(kA, 0), matrix(kA, 0), matrix(kGu, 0),
            matrix(kGu, 0), matrix(kA, 0), matrix(kA, 0), matrix(kGu, 0)};
  constexpr int blocks = int(kA / 8 / 256);
  Product up(kRows, 2 * kIntermediate, kHidden, true, memory.x, memory.w, memory.gu);
  Product down(kRows, kIntermediate, kHidden, false, memory.dy, memory.down, memory.da);
  report("gate_up", "nothing", "cuBLASLt", kForwardFlops, [&] { up.run(); }, 0);
  report("gate_up", "swiglu", "cuBLASLt", kForwardFlops, [&] {
    up.run();
    elementwise<<<blocks, 256>>>(memory.gu, memory.a);
  }, 0);
  report("down gradient", "nothing", "cuBLASLt", kGradientFlops, [&] { down.run(); }, 0);
  report("down gradient", "swiglu", "cuBLASLt", kGradientFlops, [&] {
    down.run();
    elementwiseGradient<<<blocks, 256>>>(memory.da, memory.gu, memory.dgu, memory.a);
  }, 0);
  own<256, 4, 8>();
  own<256, 4, 16>();
  own<128, 6, 8>();
  return good ? 0 : 1;
}
#endif
