// The implementations of matrix products among which GemmCache chooses.
#pragma once

#include "runtime/device/cpu/AlignedMemory.h"
#include "runtime/device/cpu/Gemm.h"

#include <functional>
#include <memory>
#include <string>

namespace lmc::cpu {

// Returns true if all matrices of the product and its bias are f32.
inline bool isPlainF32(const GemmShape &shape) {
  return shape.input == Storage::F32 && shape.output == Storage::F32 &&
         (!shape.hasBias || shape.bias == Storage::F32);
}

// A library's product without bias: multiply(shape, lda, ldb, a, b, d, ldd).
using Multiply = std::function<void(const GemmShape &shape, int64_t leadingA, int64_t leadingB,
                                    const void *a, const void *b, void *d, int64_t leadingD)>;

// Returns true if oneDNN's primitive computes the shape well. It multiplies every type, but where
// it only emulates a type, it is hundreds of times slower than other libraries.
bool oneDnnHas(const GemmShape &shape);
Result<std::unique_ptr<Gemm>> makeOneDnnGemm(const GemmShape &shape);
// Computes a product by oneDNN's sgemm, if isPlainF32(). Within a parallel region, oneDNN uses only
// the thread that calls it.
void oneDnnSgemm(const GemmShape &shape, int64_t leadingA, int64_t leadingB, const void *a,
                 const void *b, void *d, int64_t leadingD);
// Returns the version and the instructions that oneDNN uses: "2.6.3 isa 0x1ff".
std::string oneDnnVersion();

// Buffers that all packed matrix products share, because only one of them runs at a time.
struct PackedBuffers {
  AlignedMemory panelsB, sums, perThread;
};

std::unique_ptr<Gemm> makePackedGemm(const GemmShape &shape, int threads, PackedBuffers &buffers,
                                     const KernelSet &set = kernelSet());

// The sizes of the blocks of a packed product. They fit the caches: kDepth x panelColumns packed
// elements of b stay in the first-level cache, kRows x kDepth of a in the second. kRows is a
// multiple of every kernel's panelRows. The order of the sum over k follows from kDepth alone.
inline constexpr int64_t kPackedRows = 96, kPackedDepth = 256;

// Returns the depth of the panels that hold `depth` elements.
inline int64_t packedDepth(const PackedGemmKernels &kernels, int64_t depth) {
  return (depth + kernels.depthUnit - 1) / kernels.depthUnit * kernels.depthUnit;
}

// Groups of products by the packed kernels.
std::unique_ptr<GemmGroup> makePackedGroup(const GemmGroupShape &group, int threads,
                                           PackedBuffers &buffers,
                                           const KernelSet &set = kernelSet());

// Intel's MKL. It is not linked: it is opened where it is installed.
struct Mkl {
  // version, build, and the processors whose code the library runs
  std::string version;
  // Functions: cblas_sgemm, cblas_gemm_bf16bf16f32 (may be null), mkl_set_num_threads_local.
  void (*sgemm)(int layout, int transposeA, int transposeB, int m, int n, int k, float alpha,
                const float *a, int lda, const float *b, int ldb, float beta, float *d, int ldd);
  void (*bf16Gemm)(int layout, int transposeA, int transposeB, int m, int n, int k, float alpha,
                   const void *a, int lda, const void *b, int ldb, float beta, float *d, int ldd);
  int (*setThreads)(int threads);
};

// Opens MKL at the first call. LMC_MKL names its library libmkl_rt.so, or is "none"; without it,
// the library is searched where pip installs it beside lmc, in the Python environment of `./dev
// setup`, and where the system's loader looks. Returns null if it is not there. Error: LMC_MKL
// names no such library.
Result<const Mkl *> openMkl();
bool mklHas(const Mkl &mkl, const GemmShape &shape);
// Returns MKL's product on `threads` threads.
Multiply mklProduct(const Mkl &mkl, int threads);

} // namespace lmc::cpu
