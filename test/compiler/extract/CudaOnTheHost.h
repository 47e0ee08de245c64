// What an extracted kernel's program needs of the CUDA runtime, for the host. A kernel is a host function
// `extern "C" void ENTRY(void **arguments)`, whose arguments point to pointers to the tensors.
//
// It is compiled once, with the headers that these programs include.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

typedef int cudaError_t;
typedef int cudaEvent_t;
#define __host__
#define __device__
#define __global__
struct dim3 {
  constexpr dim3(unsigned = 1, unsigned = 1, unsigned = 1) {}
  static constexpr unsigned x = 1;
};
constexpr dim3 gridDim, blockDim;
constexpr struct { unsigned x; } blockIdx{0}, threadIdx{0};
constexpr int cudaSuccess = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2;
constexpr int cudaFuncAttributeMaxDynamicSharedMemorySize = 8;
inline const char *cudaGetErrorString(int) { return ""; }
inline int cudaMalloc(void **p, size_t n) {
  static std::vector<std::unique_ptr<void, decltype(&std::free)>> all;
  *p = std::aligned_alloc(64, (n + 63) / 64 * 64);
  all.emplace_back(*p, &std::free);
  return 0;
}
inline int cudaMemcpy(void *to, const void *from, size_t n, int) {
  std::memcpy(to, from, n);
  return 0;
}
inline int cudaMemset(void *to, int value, size_t n) {
  std::memset(to, value, n);
  return 0;
}
inline int cudaDeviceSynchronize() { return 0; }
inline int cudaEventCreate(int *) { return 0; }
inline int cudaEventDestroy(int) { return 0; }
inline int cudaEventRecord(int) { return 0; }
inline int cudaEventSynchronize(int) { return 0; }
inline int cudaEventElapsedTime(float *time, int, int) { *time = 1; return 0; }
inline int cudaFuncSetAttribute(const void *, int, int) { return 0; }
inline int cudaLaunchKernel(const void *entry, dim3, dim3, void **arguments, size_t, void *) {
  reinterpret_cast<void (*)(void **)>(const_cast<void *>(entry))(arguments);
  return 0;
}
template <typename... A, size_t... I>
void callWith(void (*entry)(A...), void **arguments, std::index_sequence<I...>) {
  entry(*static_cast<A *>(arguments[I])...);
}
// A test may set this to a function that changes the values that the kernel drawValues of
// harness.cu drew, whose arguments it gets.
extern "C" {
void (*changeDrawn)(void **arguments) = nullptr;
}
// A kernel of the program itself, which one thread executes.
template <typename... A>
int cudaLaunchKernel(void (*entry)(A...), dim3, dim3, void **arguments, size_t, void *) {
  callWith(entry, arguments, std::index_sequence_for<A...>());
  if (changeDrawn)
    changeDrawn(arguments);
  return 0;
}
