// Each thing that device code may use, by a kernel of a few lines.
#include "test/simt/Fixture.h"

#include <cmath>
#include <numeric>

using namespace lmc::simt;
using namespace lmc::simt::test;

TEST(Executor, runsEveryThreadOfEveryBlock) {
  Kernel kernel = build("int *y", R"(
    int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int i = block * blockDim.x + threadIdx.x;
    storeOne(y + i, 1000 * block + int(threadIdx.x));
  )");
  kernel.launch.grid = {3, 2, 2};
  kernel.launch.threads = 96;
  std::vector<int> y(12 * 96);
  EXPECT_EQ(runTwice(kernel, {result(y)}).failure, "");
  for (int i = 0; i < 12 * 96; ++i)
    EXPECT_EQ(y[i], 1000 * (i / 96) + i % 96);
}

TEST(Executor, movesVectors) {
  Kernel kernel = build("const float *x, float *y", R"(
    store<4>(y + 4 * threadIdx.x, load<4>(x + 4 * threadIdx.x));
  )");
  std::vector<float> x = randomFloats(128), y(128);
  EXPECT_EQ(runTwice(kernel, {input(x), result(y)}).failure, "");
  EXPECT_EQ(x, y);
}

// A sum over a block by shuffles and shared memory.
const char *const kBlockSum = R"(
  float *parts = reinterpret_cast<float *>(sharedMemory());
  float sum = loadOne(x + blockIdx.x * 256 + threadIdx.x);
  for (int lanes = 16; lanes > 0; lanes /= 2)
    sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0)
    parts[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (int i = 0; i < 8; ++i)
    total += parts[i];
  storeOne(y + blockIdx.x * 256 + threadIdx.x, total);
)";

TEST(Executor, reducesOverABlock) {
  Kernel kernel = build("const float *x, float *y", kBlockSum, 5, 256, 32);
  std::vector<float> x = randomFloats(5 * 256), y(5 * 256);
  for (uint64_t seed = 1; seed < 6; ++seed)
    EXPECT_EQ(runTwice(kernel, {input(x), result(y)}, seed).failure, "");
  for (int block = 0; block < 5; ++block) {
    double sum = std::accumulate(x.begin() + block * 256, x.begin() + (block + 1) * 256, 0.0);
    for (int i = 0; i < 256; ++i)
      EXPECT_NEAR(y[block * 256 + i], sum, 1e-4);
  }
}

TEST(Executor, shufflesAndVotes) {
  Kernel kernel = build("int *y", R"(
    const unsigned all = 0xffffffffu;
    int lane = threadIdx.x;
    int values[] = {__shfl_sync(all, lane, 5), __shfl_sync(all, lane, 9, 8),
                    __shfl_up_sync(all, lane, 3), __shfl_up_sync(all, lane, 3, 16),
                    __shfl_down_sync(all, lane, 2), __shfl_down_sync(all, lane, 2, 4),
                    __shfl_xor_sync(all, lane, 21), int(__ballot_sync(all, lane % 3 == 0)),
                    __any_sync(all, lane == 31), __any_sync(all, lane == 32),
                    __all_sync(all, lane < 32), __all_sync(all, lane > 0),
                    int(__shfl_sync(all, 0x100000000ull * lane + 7, 3) >> 32),
                    __syncthreads_count(lane % 4 == 1), __syncthreads_or(lane == 7),
                    __syncthreads_and(lane == 7)};
    for (int i = 0; i < 16; ++i)
      storeOne(y + i * 32 + lane, values[i]);
  )");
  std::vector<int> y(16 * 32);
  ASSERT_EQ(runTwice(kernel, {result(y)}).failure, "");
  for (int lane = 0; lane < 32; ++lane) {
    int ballot = 0;
    for (int i = 0; i < 32; i += 3)
      ballot |= 1 << i;
    const int want[] = {5,
                        lane / 8 * 8 + 1,
                        lane < 3 ? lane : lane - 3,
                        lane % 16 < 3 ? lane : lane - 3,
                        lane < 30 ? lane + 2 : lane,
                        lane % 4 < 2 ? lane + 2 : lane,
                        lane ^ 21,
                        ballot,
                        1,
                        0,
                        1,
                        0,
                        3,
                        8,
                        1,
                        0};
    for (int i = 0; i < 16; ++i)
      EXPECT_EQ(y[i * 32 + lane], want[i]) << "value " << i << " of lane " << lane;
  }
}

TEST(Executor, threadsThatReturnedAreNotWaitedFor) {
  Kernel kernel = build("float *y", R"(
    if (threadIdx.x >= 40)
      return;
    float *s = reinterpret_cast<float *>(sharedMemory());
    s[threadIdx.x] = float(threadIdx.x);
    __syncthreads();
    float other = s[39 - threadIdx.x];
    __syncwarp();
    storeOne(y + threadIdx.x, other);
  )",
                        1, 96, 160);
  std::vector<float> y(40);
  EXPECT_EQ(runTwice(kernel, {result(y)}).failure, "");
  EXPECT_EQ(y[3], 36);
}

TEST(Executor, rowsWithAPitch) {
  Kernel kernel = build("const float *x, float *y", R"(
    for (int row = 0; row < 3; ++row)
      storeOne(y + row * 48 + threadIdx.x, loadOne(x + row * 40 + threadIdx.x));
  )");
  std::vector<float> x = randomFloats(120), y(144, 7.0f);
  Argument from = input(x), to = result(y);
  from.bytes = to.bytes = 3 * 128;
  from.rows = to.rows = 3;
  from.pitch = 160;
  to.pitch = 192;
  ASSERT_EQ(runTwice(kernel, {from, to}).failure, "");
  for (int i = 0; i < 144; ++i)
    EXPECT_EQ(y[i], i % 48 < 32 ? x[i / 48 * 40 + i % 48] : 7);
}

TEST(Executor, resultsOverInputs) {
  Kernel kernel = build("const float *x, float *y", R"(
    storeOne(y + threadIdx.x, 2 * loadOne(x + threadIdx.x));
  )");
  std::vector<float> x = randomFloats(32), before = x;
  ASSERT_EQ(runTwice(kernel, {input(x), result(x)}).failure, "");
  for (int i = 0; i < 32; ++i)
    EXPECT_EQ(x[i], 2 * before[i]);
}

TEST(Executor, countsBytesAndSectors) {
  // x whole and twice, w whole by every block, s one word for all; y strided by two words.
  Kernel kernel = build("const float *x, const float *w, const float *s, float *y", R"(
    int i = blockIdx.x * 64 + threadIdx.x;
    float sum = loadOne(x + i) + loadOne(x + i) + loadOne(w + threadIdx.x) + loadOne(s);
    storeOne(y + 2 * i, sum);
    storeOne(y + 2 * i + 1, sum);
  )",
                        3, 64);
  alignas(32) static float memory[192 + 64 + 8 + 384];
  std::fill(std::begin(memory), std::end(memory), 1.0f);
  std::vector<Argument> arguments{{memory, 768, Access::Read},
                                  {memory + 192, 256, Access::Read},
                                  {memory + 256, 4, Access::Read},
                                  {memory + 264, 1536, Access::Write}};
  RunResult run = runTwice(kernel, arguments, 1, true);
  ASSERT_EQ(run.failure, "");
  const Traffic &x = run.traffic[0], &w = run.traffic[1], &s = run.traffic[2], &y = run.traffic[3];
  EXPECT_EQ(x.loaded, 2 * 768u);
  EXPECT_EQ(x.distinctLoaded, 768u);
  EXPECT_EQ(x.loadSectors, 2 * 24u);
  EXPECT_EQ(x.stored + x.storeSectors + x.distinctStored, 0u);
  EXPECT_EQ(w.loaded, 768u);
  EXPECT_EQ(w.distinctLoaded, 256u);
  EXPECT_EQ(s.loaded, 6 * 4u) << "once for each warp";
  EXPECT_EQ(s.loadSectors, 6u);
  EXPECT_EQ(y.stored, 1536u);
  EXPECT_EQ(y.distinctStored, 1536u);
  EXPECT_EQ(y.storeSectors, 2 * 48u) << "every sector by each of the two stores";
}

TEST(Executor, sourceThatDoesNotCompileIsAnError) {
  Source source{"kernel", "extern \"C\" __global__ void kernel(float *x) { undeclared(x); }"};
  auto kernel = compile(source);
  ASSERT_FALSE(kernel);
  EXPECT_THAT(kernel.error().message, testing::HasSubstr("undeclared"));
}
