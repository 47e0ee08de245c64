// The implementations of matrix products among which GemmCache chooses.
#pragma once

#include "runtime/device/cpu/Gemm.h"

#include <functional>
#include <memory>
#include <string>

namespace lmc::cpu {

inline bool isPlainF32(const GemmShape &shape) {
  return shape.input == Storage::F32 && shape.output == Storage::F32 &&
         (!shape.hasBias || shape.bias == Storage::F32);
}

// The type of a library's function that computes a product without bias. A leading dimension is the
// distance in elements from one row of a matrix to the next in memory.
using Multiply = std::function<void(const GemmShape &shape, int64_t leadingA, int64_t leadingB,
                                    const void *a, const void *b, void *d, int64_t leadingD)>;

// Returns true if oneDNN's primitive computes the shape fast. oneDNN emulates some types, and then
// takes hundreds of times as long as other libraries.
bool oneDnnHas(const GemmShape &shape);
Result<std::unique_ptr<Gemm>> makeOneDnnGemm(const GemmShape &shape);
// Computes a product by oneDNN's sgemm; isPlainF32(shape) must hold. In a parallel region, it uses
// only the calling thread.
void oneDnnSgemm(const GemmShape &shape, int64_t leadingA, int64_t leadingB, const void *a,
                 const void *b, void *d, int64_t leadingD);
// Returns the version of oneDNN and a code of the instruction set it uses: "2.6.3 isa 0x1ff".
std::string oneDnnVersion();

std::unique_ptr<Gemm> makePackedGemm(const GemmShape &shape, int threads, PackedBuffers &buffers,
                                     const KernelSet &set = kernelSet());

// The sizes of the blocks of a packed product. The first-level cache holds kPackedDepth x
// panelColumns elements of b, the second-level cache kPackedRows x kPackedDepth of a. kPackedRows
// is a multiple of every kernel's panelRows. The order of a sum depends on kPackedDepth.
inline constexpr int64_t kPackedRows = 96, kPackedDepth = 256;

// Returns `depth` rounded up to a multiple of the kernels' depthUnit.
inline int64_t packedDepth(const PackedGemmKernels &kernels, int64_t depth) {
  return (depth + kernels.depthUnit - 1) / kernels.depthUnit * kernels.depthUnit;
}

std::unique_ptr<GemmGroup> makePackedGroup(const GemmGroupShape &group, int threads,
                                           PackedBuffers &buffers,
                                           const KernelSet &set = kernelSet());

// Intel's MKL. No program links it: openMkl() loads it.
struct Mkl {
  std::string version; // "VERSION BUILD for PROCESSOR", as MKL reports them
  // MKL's cblas_sgemm, cblas_gemm_bf16bf16f32 (may be null) and mkl_set_num_threads_local.
  void (*sgemm)(int layout, int transposeA, int transposeB, int m, int n, int k, float alpha,
                const float *a, int lda, const float *b, int ldb, float beta, float *d, int ldd);
  void (*bf16Gemm)(int layout, int transposeA, int transposeB, int m, int n, int k, float alpha,
                   const void *a, int lda, const void *b, int ldb, float beta, float *d, int ldd);
  int (*setThreads)(int threads);
};

// Loads MKL's libmkl_rt.so at the first call, from the path in environment variable LMC_MKL if set.
// Else searches beside lmc (pip), in `./dev setup`'s environment and where the system's loader
// looks. Returns null if MKL is not found, or LMC_MKL is "none". Error: LMC_MKL is no library.
Result<const Mkl *> openMkl();
bool mklHas(const Mkl &mkl, const GemmShape &shape);
// Returns a function that computes a product by MKL on `threads` threads.
Multiply mklProduct(const Mkl &mkl, int threads);

} // namespace lmc::cpu
