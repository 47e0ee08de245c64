// The copy bandwidth of a GPU: the ceiling for kernels that only move bytes.
//
//   nvcc -O2 -std=c++17 -arch=native bench/gpu/copy.cu -o copy
//
// Copies 2 GiB, far more than the L2 cache holds, and prints a line of JSON per way of copying.
// Each byte counts twice, as a read and as a write.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    cudaError_t error = call;                                                                      \
    if (error != cudaSuccess) {                                                                    \
      std::fprintf(stderr, "copy: error: %s: %s\n", #call, cudaGetErrorString(error));             \
      std::exit(2);                                                                                \
    }                                                                                              \
  } while (false)

constexpr size_t kBytes = size_t(2) << 30, kWords = kBytes / sizeof(uint4);

// Each thread copies four words of 16 bytes that are `blockDim.x` words apart.
__global__ void copyWords(const uint4 *from, uint4 *to) {
  const size_t first = size_t(blockIdx.x) * blockDim.x * 4 + threadIdx.x;
  uint4 words[4];
  for (int i = 0; i < 4; ++i)
    words[i] = from[first + size_t(i) * blockDim.x];
  for (int i = 0; i < 4; ++i)
    to[first + size_t(i) * blockDim.x] = words[i];
}

template <typename Copy> void measure(const char *name, Copy copy) {
  cudaEvent_t begin, end;
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  std::vector<float> times;
  for (int run = 0; run < 33; ++run) {
    CHECK(cudaEventRecord(begin));
    copy();
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds;
    CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    if (run >= 3)
      times.push_back(milliseconds);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf("{\"copy\": \"%s\", \"ms\": %.4f, \"gbps\": %.1f}\n", name, median,
              2 * kBytes / median * 1e-6);
}

int main() {
  void *from, *to;
  CHECK(cudaMalloc(&from, kBytes));
  CHECK(cudaMalloc(&to, kBytes));
  CHECK(cudaMemset(from, 1, kBytes));
  measure("cudaMemcpy",
          [&] { CHECK(cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDeviceToDevice)); });
  measure("kernel", [&] {
    copyWords<<<unsigned(kWords / 1024), 256>>>(static_cast<const uint4 *>(from),
                                                static_cast<uint4 *>(to));
    CHECK(cudaGetLastError());
  });
  return 0;
}
