// Work that keeps tensor cores busy. What is timed after this work runs at the clock and the power
// of a training step, where products take most of the time: a GPU that is limited by power runs a
// short kernel alone at a higher clock. Needs lmc/platform.cuh.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

namespace host {

inline void checkHeat(cudaError_t result, const char *what) {
  if (result == cudaSuccess)
    return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(result));
  std::exit(2);
}

#ifdef __CUDACC__
constexpr int kHeatThreads = 256, kHeatBytes = 56 * 1024;

// Multiplies random bf16 matrices of ±[1/2, 1) in shared memory, `rounds` times: on sm_90a 64 x 256
// x 64 by each of two warpgroups, elsewhere 16 x 64 x 16 by each warp. Counts sums of `unlikely`,
// so that the compiler keeps the products.
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

// Prints when a phase ran, so that clock and power that others sample can be assigned to phases.
inline void printPhase(const char *name, double began) {
  std::printf("phase %s %.4f %.4f\n", name, began, now());
}

#ifdef __CUDACC__
class Heat {
public:
  Heat() {
    int device = 0, units = 0;
    checkHeat(cudaGetDevice(&device), "device");
    checkHeat(cudaDeviceGetAttribute(&units, cudaDevAttrMultiProcessorCount, device), "device");
    blocks = units;
    checkHeat(cudaMalloc(&counted, sizeof *counted), "heat");
    checkHeat(cudaFuncSetAttribute(multiplyForHeat, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   kHeatBytes),
              "heat");
    cudaEvent_t begin, end;
    checkHeat(cudaEventCreate(&begin), "event");
    checkHeat(cudaEventCreate(&end), "event");
    float milliseconds = 0;
    for (int run = 0; run < 2; ++run) { // the first run loads the code
      checkHeat(cudaEventRecord(begin), "event");
      launch(kTrial);
      checkHeat(cudaEventRecord(end), "event");
      checkHeat(cudaEventSynchronize(end), "heat");
      checkHeat(cudaEventElapsedTime(&milliseconds, begin, end), "event");
    }
    roundsPerMillisecond = std::max(1.0, kTrial / std::max(1e-3, double(milliseconds)));
  }
  // Enqueues work of so many milliseconds at the clock of the trial.
  void enqueue(double milliseconds) { launch(int(milliseconds * roundsPerMillisecond)); }

  double ended = 0; // when something was last timed in heat

private:
  static constexpr int kTrial = 2000;
  void launch(int rounds) {
    multiplyForHeat<<<blocks, kHeatThreads, kHeatBytes>>>(rounds, 0.1f, counted);
    checkHeat(cudaGetLastError(), "heat");
  }
  int blocks = 0;
  unsigned *counted = nullptr;
  double roundsPerMillisecond = 0;
};

#else // compiled for the host: nothing gets hot
struct Heat {
  void enqueue(double) {}
  double ended = 0;
};
#endif

inline Heat &theHeat() {
  static Heat heat;
  return heat;
}

// Returns the milliseconds of one run in heat: the median of 21 runs, each enqueued after 3 ms of
// products, all after 300 ms of products (30 ms if the GPU has just been in heat). Prints the phase
// "heat".
template <typename Run> double millisecondsInHeat(Run run) {
  constexpr int kRuns = 21;
  constexpr double kBefore = 3;
  Heat &heat = theHeat();
  std::vector<cudaEvent_t> events(2 * kRuns);
  for (cudaEvent_t &event : events)
    checkHeat(cudaEventCreate(&event), "event");
  for (int i = 0; i < (now() - heat.ended < 0.1 ? 10 : 100); ++i)
    heat.enqueue(kBefore);
  checkHeat(cudaDeviceSynchronize(), "heat");
  const double began = now();
  for (int i = 0; i < kRuns; ++i) {
    heat.enqueue(kBefore);
    checkHeat(cudaEventRecord(events[2 * size_t(i)]), "event");
    run();
    checkHeat(cudaEventRecord(events[2 * size_t(i) + 1]), "event");
  }
  checkHeat(cudaDeviceSynchronize(), "run");
  printPhase("heat", began);
  heat.ended = now();
  std::vector<float> times(kRuns);
  for (size_t i = 0; i < times.size(); ++i)
    checkHeat(cudaEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]), "event");
  for (cudaEvent_t event : events)
    checkHeat(cudaEventDestroy(event), "event");
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Repeats `run` for so many seconds without a pause, and returns the mean milliseconds of a run.
// Prints the phase "hold".
template <typename Run> double millisecondsHeld(double seconds, Run run) {
  run();
  checkHeat(cudaDeviceSynchronize(), "run");
  const double began = now();
  int runs = 0;
  // Keeps two batches in the queue, so that the GPU never waits for this program.
  cudaEvent_t ended[2];
  for (cudaEvent_t &event : ended)
    checkHeat(cudaEventCreate(&event), "event");
  for (int batch = 0; now() - began < seconds || batch < 2; ++batch) {
    if (batch >= 2)
      checkHeat(cudaEventSynchronize(ended[batch % 2]), "run");
    for (int i = 0; i < 20; ++i, ++runs)
      run();
    checkHeat(cudaEventRecord(ended[batch % 2]), "event");
  }
  checkHeat(cudaDeviceSynchronize(), "run");
  const double spent = now() - began;
  printPhase("hold", began);
  for (cudaEvent_t event : ended)
    checkHeat(cudaEventDestroy(event), "event");
  return 1e3 * spent / runs;
}

} // namespace host
