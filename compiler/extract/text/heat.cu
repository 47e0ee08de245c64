// Heat: matrix products that keep the tensor cores busy before a measurement. A GPU that is limited
// by power runs a short kernel alone at a higher clock than in a training step. "In heat", right
// after such products, the kernel runs at the clock of a training step. Needs lmc/platform.cuh.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace host {

inline void check(cudaError_t result, const char *what) {
  if (result == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(2);
}

#ifdef __CUDACC__
constexpr int kHeatThreads = 256, kHeatBytes = 56 * 1024;

// Multiplies random bf16 matrices in shared memory, `rounds` times. Their elements have absolute
// values in [1/2, 1). On sm_90a, each of two warpgroups computes products of m x n x k = 64 x 256 x
// 64; elsewhere, each warp computes products of 16 x 64 x 16. Counts the threads that have a sum
// equal to `unlikely`, so that the compiler cannot remove the products.
__global__ void __launch_bounds__(kHeatThreads)
multiplyForHeat(int rounds, float unlikely, unsigned *counted) {
  using namespace lmc;
  u8 *shared = sharedMemory();
  const u32 start = (sharedAddress(shared) + 1023) / 1024 * 1024;
  shared += start - sharedAddress(shared);
  u32 state = blockIdx.x * kHeatThreads + threadIdx.x + 1;
  for (int word = int(threadIdx.x); word < (kHeatBytes - 1024) / 4; word += kHeatThreads) {
    state = state * 1664525u + 1013904223u;
    reinterpret_cast<u32 *>(shared)[word] = (state & 0x807f807fu) | 0x3f003f00u;
  }
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  seenByProducts();
  __syncthreads();
  GroupProducts products;
  float d[128];
  for (int i = 0; i < 128; ++i)
    d[i] = 0.0f;
  const u32 a = start + threadIdx.x / 128 * 64 * kTileRowBytes, b = start + 128 * kTileRowBytes;
  for (int round = 0; round < rounds; ++round) {
    products.begin();
#pragma unroll
    for (int step = 0; step < 4; ++step)
      products.add<256, false, false>(d, a + step * 32, b + step * 32);
    products.commit();
    products.finish(d);
  }
  bool isSeen = false;
  for (int i = 0; i < 128; ++i)
    isSeen |= d[i] == unlikely;
#else
  __syncthreads();
  const u32 *words = reinterpret_cast<const u32 *>(shared) + threadIdx.x;
  u32 a[4], b[8][2];
  float d[8][4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    a[i] = words[i * kHeatThreads];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 4; ++j) {
      b[i][j / 2] = words[(4 + 2 * i + j / 2) * kHeatThreads];
      d[i][j] = 0.0f;
    }
  for (int round = 0; round < rounds; ++round)
#pragma unroll
    for (int i = 0; i < 8; ++i)
      multiplyAdd16x8x16(d[i], a, b[i][0], b[i][1]);
  bool isSeen = false;
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 4; ++j)
      isSeen |= d[i][j] == unlikely;
#endif
  if (isSeen)
    atomicAdd(counted, 1u);
}

#endif

// Returns the seconds of a clock that all programs of the machine share.
inline double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

// Prints the start and the end of a phase, for a program that samples the GPU's clock and power.
inline void printPhase(const char *name, double began) {
  std::printf("phase %s %.4f %.4f\n", name, began, now());
}

#ifdef __CUDACC__
class Heat {
public:
  Heat() {
    int device = 0, units = 0;
    check(cudaGetDevice(&device), "device");
    check(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device), "device");
    blocks = units;
    check(cudaMalloc(&counted, sizeof *counted), "heat");
    check(cudaFuncSetAttribute(multiplyForHeat, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               kHeatBytes),
          "heat");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "event");
    check(cudaEventCreate(&end), "event");
    float milliseconds = 0;
    for (int run = 0; run < 2; ++run) { // the first run loads the code
      check(cudaEventRecord(begin), "event");
      launch(kTrial);
      check(cudaEventRecord(end), "event");
      check(cudaEventSynchronize(end), "heat");
      check(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    }
    roundsPerMillisecond = std::max(1.0, kTrial / std::max(1e-3, double(milliseconds)));
  }
  // Enqueues products that take `milliseconds` at the clock that the GPU had in the constructor.
  void enqueue(double milliseconds) { launch(int(milliseconds * roundsPerMillisecond)); }

  double ended = 0; // when millisecondsInHeat() last ended a measurement

private:
  static constexpr int kTrial = 2000;
  void launch(int rounds) {
    multiplyForHeat<<<blocks, kHeatThreads, kHeatBytes>>>(rounds, 0.1f, counted);
    check(cudaGetLastError(), "heat");
  }
  int blocks = 0;
  unsigned *counted = nullptr;
  double roundsPerMillisecond = 0;
};

#else // compiled for the host, where nothing is heated
struct Heat {
  void enqueue(double) {}
  double ended = 0;
};
#endif

inline Heat &theHeat() {
  static Heat heat;
  return heat;
}

// Returns the milliseconds of one run in heat: the median of 21 runs, each right after 3 ms of
// products. Before the first one, products run for 300 ms, or for only 30 ms if the last
// measurement in heat ended less than 0.1 s ago. Prints the phase "heat".
template <typename Run> double millisecondsInHeat(Run run) {
  constexpr int kRuns = 21;
  constexpr double kBefore = 3;
  Heat &heat = theHeat();
  std::vector<cudaEvent_t> events(2 * kRuns);
  for (cudaEvent_t &event : events)
    check(cudaEventCreate(&event), "event");
  for (int i = 0; i < (now() - heat.ended < 0.1 ? 10 : 100); ++i)
    heat.enqueue(kBefore);
  check(cudaDeviceSynchronize(), "heat");
  const double began = now();
  for (int i = 0; i < kRuns; ++i) {
    heat.enqueue(kBefore);
    check(cudaEventRecord(events[2 * size_t(i)]), "event");
    run();
    check(cudaEventRecord(events[2 * size_t(i) + 1]), "event");
  }
  check(cudaDeviceSynchronize(), "run");
  printPhase("heat", began);
  heat.ended = now();
  std::vector<float> times(kRuns);
  for (size_t i = 0; i < times.size(); ++i)
    check(cudaEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]), "event");
  for (cudaEvent_t event : events)
    check(cudaEventDestroy(event), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Runs `run` again and again for `seconds`, without a pause. Returns the mean milliseconds of a
// run. Prints the phase "hold".
template <typename Run> double millisecondsHeld(double seconds, Run run) {
  run();
  check(cudaDeviceSynchronize(), "run");
  const double began = now();
  int runs = 0;
  // Two batches of 20 runs are always enqueued, so that the GPU never waits for this program.
  cudaEvent_t ended[2];
  for (cudaEvent_t &event : ended)
    check(cudaEventCreate(&event), "event");
  for (int batch = 0; now() - began < seconds || batch < 2; ++batch) {
    if (batch >= 2)
      check(cudaEventSynchronize(ended[batch % 2]), "run");
    for (int i = 0; i < 20; ++i, ++runs)
      run();
    check(cudaEventRecord(ended[batch % 2]), "event");
  }
  check(cudaDeviceSynchronize(), "run");
  const double spent = now() - began;
  printPhase("hold", began);
  for (cudaEvent_t event : ended)
    check(cudaEventDestroy(event), "event");
  return 1e3 * spent / runs;
}

} // namespace host
