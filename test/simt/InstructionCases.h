// What a warp computes with the instructions that the SIMT device emulates (platform.cuh):
// ldmatrix, mma, wgmma, cp.async, cvt and ex2. The layouts are written out here once more, from the
// tables of the PTX ISA, and not taken from the executor. InstructionTest runs the cases on the
// executor, and instruction-cases writes them as a CUDA program, so that a GPU can be compared with
// it.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace lmc::simt::test {

// One block of `threads` runs `body` with pointers to the inputs and to the result as `parameters`.
// Inputs and result are 32-bit words.
struct InstructionCase {
  std::string name, parameters, body;
  uint32_t sharedBytes;
  std::vector<std::vector<uint32_t>> inputs;
  std::vector<uint32_t> expected;
  double relative = 0;     // allowed error of results that are f32; 0: equal bits
  uint32_t threads = 32;   // one warp, or a warpgroup
  bool needsSm90a = false; // other architectures do not have the instruction
};

inline std::vector<uint32_t> bitsOf(const std::vector<float> &values) {
  std::vector<uint32_t> words;
  for (float value : values)
    words.push_back(std::bit_cast<uint32_t>(value));
  return words;
}

inline std::vector<uint32_t> pairsOf(const std::vector<uint16_t> &halves) {
  std::vector<uint32_t> words;
  for (size_t i = 0; i < halves.size(); i += 2)
    words.push_back(halves[i] | uint32_t(halves[i + 1]) << 16);
  return words;
}

// Returns `count` floats that are exact in bf16: multiples of 1/16 below 8. Sums of 16 of their
// products are exact in f32, in any order.
inline std::vector<float> exactFloats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<float> values(count);
  for (float &value : values)
    value = float(int(generator() % 255) - 127) / 16;
  return values;
}

// ldmatrix.x4: thread 0 receives the elements 0 and 1 of row 0 of each of the four matrices, thread
// 1 the elements 2 and 3, ..., thread 4 the elements 0 and 1 of row 1. The rows are stored in an
// order of their own, so that the addresses count and not the places.
inline InstructionCase loadMatrixCase(bool transposed) {
  InstructionCase made{transposed ? "ldmatrix_trans" : "ldmatrix",
                       "const u16 *x, u32 *y",
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
                       512,
                       {},
                       {}};
  std::vector<uint16_t> x(256), y;
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = uint16_t(i);
  for (int lane = 0; lane < 32; ++lane)
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int half = 0; half < 2; ++half) {
        int row = lane / 4, column = lane % 4 * 2 + half;
        if (transposed)
          std::swap(row, column);
        const int address = (matrix * 8 + row) * 5 % 32; // in rows of 8 elements
        y.push_back(uint16_t(address * 8 + column));
      }
  made.inputs = {pairsOf(x)};
  made.expected = pairsOf(y);
  return made;
}

// mma.m16n8k16. A, of a0..a7: row = g for a0, a1, a4, a5, else g + 8; column = t * 2 + (i & 1) for
// i < 4, and 8 more for i >= 4. B, of b0..b3: row = t * 2 + (i & 1), and 8 more for i >= 2; column
// = g. C: row = g for c0, c1, else g + 8; column = t * 2 + (i & 1). g is lane / 4, t is lane % 4.
inline InstructionCase multiplyAddCase() {
  const std::vector<float> a = exactFloats(16 * 16, 5), b = exactFloats(16 * 8, 6),
                           c = exactFloats(16 * 8, 7);
  auto half = [](float x) { return uint16_t(std::bit_cast<uint32_t>(x) >> 16); };
  std::vector<uint16_t> aLanes, bLanes;
  std::vector<float> cLanes, d;
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane >> 2, t = lane & 3;
    for (int i = 0; i < 8; ++i)
      aLanes.push_back(half(a[(i % 4 < 2 ? g : g + 8) * 16 + t * 2 + (i & 1) + (i >= 4 ? 8 : 0)]));
    for (int i = 0; i < 4; ++i) {
      bLanes.push_back(half(b[(t * 2 + (i & 1) + (i >= 2 ? 8 : 0)) * 8 + g]));
      const int row = i < 2 ? g : g + 8, column = t * 2 + (i & 1);
      float sum = c[row * 8 + column];
      cLanes.push_back(sum);
      for (int k = 0; k < 16; ++k)
        sum += a[row * 16 + k] * b[k * 8 + column];
      d.push_back(sum);
    }
  }
  return {"mma", "const u32 *a, const u32 *b, const float *c, float *d", R"(
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
  )",
          0,     {pairsOf(aLanes), pairsOf(bLanes), bitsOf(cLanes)},     bitsOf(d)};
}

// cp.async: y = x by tiles of 64 floats; a tile is copied while the one before it is stored. The
// end is ragged: the last tile has 20 floats of x, and zeros, to which 1 is added.
inline InstructionCase copyAsyncCase() {
  std::vector<float> x = exactFloats(64 * 5 + 20, 8), y = x;
  y.resize(64 * 6, 1);
  return {"cp_async", "const float *x, float *y", R"(
    const int n = 64 * 5 + 20;
    float *tiles = reinterpret_cast<float *>(sharedMemory());
    int t = threadIdx.x;
    auto fetch = [&](int tile) {
      int at = tile * 64 + 4 * t;
      if (t < 16)
        copyAsync16(sharedAddress(tiles + tile % 2 * 64 + 4 * t), x + at, at < n);
      copyAsyncCommit();
    };
    fetch(0);
    for (int tile = 0; tile < 6; ++tile) {
      fetch(tile + 1);
      copyAsyncWait<1>();
      __syncthreads();
      for (int i = t; i < 64; i += 32)
        if (tile * 64 + i < n)
          storeOne(y + tile * 64 + i, tiles[tile % 2 * 64 + i]);
        else
          storeOne(y + tile * 64 + i, 1 + tiles[tile % 2 * 64 + i]);
      __syncthreads();
    }
  )", 512, {bitsOf(x)}, bitsOf(y)};
}

// cvt.rn.bf16 to the nearest, ties to even, with both halves of cvt.rn.bf16x2.
inline InstructionCase roundingCase() {
  // Half way to even: 1, and 1 + 4/256. NaN is the canonical one; 3.4e38 rounds to infinity.
  const std::vector<float> x{1 + 1.0f / 256, 1 + 3.0f / 256, NAN, -INFINITY, 3.4e38f, -0.0f};
  const std::vector<uint16_t> y{0x3f80, 0x3f82, 0x7fff, 0xff80, 0x7f80, 0x8000};
  std::vector<uint32_t> inputs, expected;
  for (int lane = 0; lane < 32; ++lane)
    inputs.push_back(std::bit_cast<uint32_t>(x[lane % 6]));
  for (int lane = 0; lane < 32; ++lane) {
    expected.push_back(y[lane % 6]);
    expected.push_back(y[lane % 6] | uint32_t(y[(lane + 1) % 32 % 6]) << 16);
  }
  return {"cvt", "const float *x, u32 *y", R"(
    float a = loadOne(x + threadIdx.x), b = loadOne(x + (threadIdx.x + 1) % 32);
    storeOne(y + 2 * threadIdx.x, u32(toBf16(a).bits));
    storeOne(y + 2 * threadIdx.x + 1, packBf16(a, b));
  )", 0, {inputs}, expected};
}

inline InstructionCase exp2Case() {
  std::vector<float> x(32), y;
  for (int i = 0; i < 31; ++i)
    x[i] = -130 + 8.3f * float(i);
  x[31] = -INFINITY;
  for (float value : x) {
    const double power = std::exp2(double(value));
    y.push_back(power < 0x1p-126 ? 0 : float(power));
  }
  return {"ex2",
          "const float *x, float *y",
          "storeOne(y + threadIdx.x, exp2Fast(loadOne(x + threadIdx.x)));",
          0,
          {bitsOf(x)},
          bitsOf(y),
          3e-7};
}

// wgmma.m64nNk16 of the terms 16 to 31 of tiles with 64 terms, where d starts as 1. Row r of a
// and column c of b, or term k of `turned` ones, are rows of 128 bytes, of which the 16-byte chunks
// are swizzled: chunk j of row r is at j xor r mod 8. D of thread t: row = 16 (t / 32) + (t mod 32)
// / 4, and 8 more for d2, d3 of each four; column = 8 (i / 4) + 2 (t mod 4) + i mod 2. If `inRegisters`,
// thread t has of a: row as in d, and 8 more for words 1 and 3; terms 2 (t mod 4) and the next, and 8
// more for words 2 and 3. If `fresh`, the product takes the place of d.
inline InstructionCase groupProductsCase(int columns, bool turned, bool inRegisters, bool fresh) {
  const int kRows = 64, kTerms = 64;
  const std::vector<float> a = exactFloats(size_t(kRows * kTerms), 9),
                           b = exactFloats(size_t(columns * kTerms), 10);
  auto words = [&](const std::vector<float> &x, int across, bool turnedFactor) {
    std::vector<uint16_t> halves;
    auto add = [&](int at, int term) {
      const float value = at < across ? x[size_t(at * kTerms + term)] : 0;
      halves.push_back(uint16_t(std::bit_cast<uint32_t>(value) >> 16));
    };
    for (int tile = 0; tile < (across + 63) / 64; ++tile)
      for (int row = 0; row < 64; ++row)
        for (int i = 0; i < 64; ++i)
          turnedFactor ? add(64 * tile + i, row) : add(64 * tile + row, i);
    return pairsOf(halves);
  };
  std::vector<float> d;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < columns / 2; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8,
                column = i / 4 * 8 + t % 4 * 2 + i % 2;
      float sum = fresh ? 0 : 1;
      for (int k = 16; k < 32; ++k)
        sum += a[size_t(row * kTerms + k)] * b[size_t(column * kTerms + k)];
      d.push_back(sum);
    }
  const int tiles = 1 + (columns + 63) / 64;
  const std::string kind = turned ? "true" : "false", step = turned ? "2048" : "32",
                    n = std::to_string(columns), half = std::to_string(columns / 2);
  const std::string name = std::string("wgmma_n") + n + (inRegisters ? "_registers" : "") + (turned ? "_turned" : "") +
                           (fresh ? "_fresh" : "");
  return {name,
          "const u32 *a, const u32 *b, float *d",
          R"(
    const int t = threadIdx.x;
    const u32 tiles = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
    for (int i = t; i < )" +
              std::to_string(tiles) + R"( * 64 * 32; i += 128) {
      const int row = i / 32, chunk = i % 32 / 4, word = i % 4;
      storeForProducts<4>(tiles + row * 128 + (chunk ^ row % 8) * 16 + word * 4,
                          Bits<4>{loadOne(row < 64 ? a + i : b + i - 64 * 32)});
    }
    )" + std::string(inRegisters ? R"(u32 words[4];
    for (int w = 0; w < 4; ++w)
      words[w] = loadOne(a + (t / 32 * 16 + t % 32 / 4 + w % 2 * 8) * 32 + 8 + t % 4 + w / 2 * 4);
    )" : "") + "float sums[" + half +
              R"(];
    for (int i = 0; i < )" +
              half + R"(; ++i)
      sums[i] = 1;
    GroupProducts products;
    seenByProducts();
    __syncthreads();
    products.begin();
    products.add<)" +
              n + ", " +
              kind + (inRegisters ? "" : ", " + kind) + (fresh ? ", true" : "") + ">(sums, " +
              (inRegisters ? "words" : "tiles + " + step) +
              ", tiles + 8192 + " + step + R"();
    products.commit();
    products.finish(sums);
    for (int i = 0; i < )" +
              half + R"(; ++i)
      storeOne(d + )" +
              half + R"( * t + i, sums[i]);
  )",
          uint32_t(tiles * 8192 + 1024),
          {words(a, kRows, turned && !inRegisters), words(b, columns, turned)},
          bitsOf(d),
          0,
          128,
          true};
}

// wgmma.m64n128k32 of the codes 32 to 63 of rows of 128 codes of 8-bit floats, where d starts as 1.
// The layouts are those of groupProductsCase. The numbers are whole and at most 3, so that sums are
// exact.
inline InstructionCase groupCodesCase(bool isE4M3, bool fresh) {
  const int kRows = 64, kColumns = 128, kTerms = 128;
  const uint32_t codes[] = {0, isE4M3 ? 0x38u : 0x3cu, 0x40,
                            isE4M3 ? 0x44u : 0x42u}; // of 0, 1, 2, 3
  std::mt19937 generator(11);
  auto draw = [&](int rows) {
    std::vector<int> numbers(size_t(rows * kTerms));
    for (int &number : numbers)
      number = int(generator() % 7) - 3;
    return numbers;
  };
  const std::vector<int> a = draw(kRows), b = draw(kColumns);
  auto words = [&](const std::vector<int> &numbers) {
    std::vector<uint32_t> packed(numbers.size() / 4);
    for (size_t i = 0; i < numbers.size(); ++i)
      packed[i / 4] |= (codes[std::abs(numbers[i])] | (numbers[i] < 0 ? 0x80u : 0)) << i % 4 * 8;
    return packed;
  };
  std::vector<float> d;
  for (int t = 0; t < 128; ++t)
    for (int i = 0; i < kColumns / 2; ++i) {
      const int row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8,
                column = i / 4 * 8 + t % 4 * 2 + i % 2;
      int sum = fresh ? 0 : 1;
      for (int k = 32; k < 64; ++k)
        sum += a[size_t(row * kTerms + k)] * b[size_t(column * kTerms + k)];
      d.push_back(float(sum));
    }
  return {std::string("wgmma_") + (isE4M3 ? "e4m3" : "e5m2") + (fresh ? "_fresh" : ""),
          "const u32 *a, const u32 *b, float *d",
          std::string(R"(
    const int t = threadIdx.x;
    const u32 tiles = (sharedAddress(sharedMemory()) + 1023) / 1024 * 1024;
    for (int i = t; i < 192 * 32; i += 128) {
      const int row = i / 32, chunk = i % 32 / 4, word = i % 4;
      storeForProducts<4>(tiles + row * 128 + (chunk ^ row % 8) * 16 + word * 4,
                          Bits<4>{loadOne(row < 64 ? a + i : b + i - 64 * 32)});
    }
    float sums[64];
    for (int i = 0; i < 64; ++i)
      sums[i] = 1;
    GroupProducts products;
    seenByProducts();
    __syncthreads();
    products.begin();
    products.addCodes<128, )") +
              (isE4M3 ? "true" : "false") + (fresh ? ", true" : "") +
              R"(>(sums, tiles + 32, tiles + 8192 + 32);
    products.commit();
    products.finish(sums);
    for (int i = 0; i < 64; ++i)
      storeOne(d + 64 * t + i, sums[i]);
  )",
          uint32_t(3 * 8192 + 1024),
          {words(a), words(b)},
          bitsOf(d),
          0,
          128,
          true};
}

inline std::vector<InstructionCase> instructionCases() {
  std::vector<InstructionCase> cases = {loadMatrixCase(false), loadMatrixCase(true), multiplyAddCase(),
                                        copyAsyncCase(),       roundingCase(),       exp2Case()};
  for (int columns : {32, 64, 96, 128, 192, 256})
    for (bool inRegisters : {false, true})
      for (bool turned : {false, true})
        cases.push_back(groupProductsCase(columns, turned, inRegisters, false));
  for (bool inRegisters : {false, true})
    cases.push_back(groupProductsCase(128, false, inRegisters, true));
  for (bool isE4M3 : {false, true})
    for (bool fresh : {false, true})
      cases.push_back(groupCodesCase(isE4M3, fresh));
  return cases;
}

} // namespace lmc::simt::test
