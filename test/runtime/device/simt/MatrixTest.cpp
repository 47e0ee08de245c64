// ldmatrix and mma against their description in the PTX ISA: the layouts are written out here
// once more, from the tables there, and not taken from the executor.
#include "test/runtime/device/simt/Fixture.h"

#include <cmath>

using namespace lmc::simt;
using namespace lmc::simt::test;

// Element e of register i of a lane, in the four matrices that ldmatrix.x4 loads: thread T0 has
// elements 0 and 1 of row 0, T1 2 and 3, ..., T4 elements 0 and 1 of row 1.
TEST(Matrix, loadMatrix4) {
  for (bool transposed : {false, true}) {
    // Rows are stored in an order of their own: the addresses count, not the places.
    Kernel kernel = build("const u16 *x, u32 *y",
                          std::string(R"(
      u8 *shared = sharedMemory();
      for (int i = threadIdx.x; i < 256; i += 32)
        reinterpret_cast<u16 *>(shared)[i] = loadOne(x + i);
      __syncwarp();
      u32 words[4];
      )") + (transposed ? "loadMatrix4Transposed" : "loadMatrix4") +
                              R"((words, sharedAddress(shared) + 16 * ((threadIdx.x * 5) % 32));
      for (int i = 0; i < 4; ++i)
        storeOne(y + 4 * threadIdx.x + i, words[i]);
    )",
                          1, 32, 512);
    std::vector<uint16_t> x(256);
    for (int i = 0; i < 256; ++i)
      x[i] = uint16_t(i);
    std::vector<uint32_t> y(128);
    ASSERT_EQ(runTwice(kernel, {input(x), result(y)}).failure, "");
    for (int lane = 0; lane < 32; ++lane)
      for (int matrix = 0; matrix < 4; ++matrix)
        for (int half = 0; half < 2; ++half) {
          int row = lane / 4, column = lane % 4 * 2 + half;
          if (transposed)
            std::swap(row, column);
          const int address = (matrix * 8 + row) * 5 % 32; // in rows of 8 elements
          EXPECT_EQ(y[lane * 4 + matrix] >> 16 * half & 0xffff, uint32_t(address * 8 + column))
              << "lane " << lane << ", matrix " << matrix << ", half " << half;
        }
  }
}

// mma.m16n8k16, PTX ISA. A, of a0..a7: row = g for a0, a1, a4, a5, else g + 8; column =
// t * 2 + (i & 1) for i < 4, and 8 more for i >= 4. B, of b0..b3: row = t * 2 + (i & 1), and 8
// more for i >= 2; column = g. C: row = g for c0, c1, else g + 8; column = t * 2 + (i & 1).
TEST(Matrix, multiplyAdd16x8x16) {
  Kernel kernel = build("const u32 *a, const u32 *b, const float *c, float *d", R"(
    int t = threadIdx.x;
    u32 as[4];
    float sums[4];
    for (int i = 0; i < 4; ++i) {
      as[i] = loadOne(a + 4 * t + i);
      sums[i] = loadOne(c + 4 * t + i);
    }
    multiplyAdd16x8x16(sums, as, loadOne(b + 2 * t), loadOne(b + 2 * t + 1));
    for (int i = 0; i < 4; ++i)
      storeOne(d + 4 * t + i, sums[i]);
  )");
  std::mt19937 generator(5);
  auto random = [&] { return float(int(generator() % 255) - 127) / 16; }; // exact in bf16
  auto bits = [](float x) {
    uint32_t word;
    std::memcpy(&word, &x, 4);
    return uint16_t(word >> 16);
  };
  float a[16][16], b[16][8], c[16][8];
  for (auto &row : a)
    for (float &x : row)
      x = random();
  for (auto &row : b)
    for (float &x : row)
      x = random();
  for (auto &row : c)
    for (float &x : row)
      x = random();
  std::vector<uint16_t> aLanes(256), bLanes(128);
  std::vector<float> cLanes(128), d(128);
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane >> 2, t = lane & 3;
    for (int i = 0; i < 8; ++i)
      aLanes[lane * 8 + i] = bits(a[i % 4 < 2 ? g : g + 8][t * 2 + (i & 1) + (i >= 4 ? 8 : 0)]);
    for (int i = 0; i < 4; ++i) {
      bLanes[lane * 4 + i] = bits(b[t * 2 + (i & 1) + (i >= 2 ? 8 : 0)][g]);
      cLanes[lane * 4 + i] = c[i < 2 ? g : g + 8][t * 2 + (i & 1)];
    }
  }
  ASSERT_EQ(runTwice(kernel, {input(aLanes), input(bLanes), input(cLanes), result(d)}).failure, "");
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      const int row = (lane >> 2) + (i < 2 ? 0 : 8), column = (lane & 3) * 2 + (i & 1);
      double sum = c[row][column];
      for (int k = 0; k < 16; ++k)
        sum += double(a[row][k]) * b[k][column];
      EXPECT_NEAR(d[lane * 4 + i], sum, 1e-3) << row << ", " << column;
    }
}

TEST(Matrix, exp2Fast) {
  Kernel kernel = build("const float *x, float *y",
                        "storeOne(y + threadIdx.x, exp2Fast(loadOne(x + threadIdx.x)));");
  std::vector<float> x(32), y(32);
  for (int i = 0; i < 32; ++i)
    x[i] = -130 + 8.3f * float(i);
  x[31] = -INFINITY;
  ASSERT_EQ(runTwice(kernel, {input(x), result(y)}).failure, "");
  for (int i = 0; i < 32; ++i) {
    const double want = std::exp2(double(x[i]));
    EXPECT_NEAR(y[i], want < std::exp2(-126.0) ? 0 : want, want * 3e-7);
  }
}
