#include "test/runtime/device/cpu/Values.h"

#include <gtest/gtest.h>
#include <omp.h>

using namespace lmc::cpu;
using lmc::cpu::test::Values;

static std::vector<double> reference(const GemmShape &s, const Values &a, const Values &b,
                                     const Values &before, const Values &bias) {
  std::vector<double> d(size_t(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = (s.accumulate ? before[i * s.n + j] : 0) + (s.hasBias ? bias[j] : 0);
      for (int64_t k = 0; k < s.k; ++k)
        sum += a[s.transposeA ? k * s.m + i : i * s.k + k] *
               b[s.transposeB ? j * s.k + k : k * s.n + j];
      d[size_t(i * s.n + j)] = sum;
    }
  return d;
}

static void check(GemmShape shape, GemmLibrary library, int threads, std::mt19937_64 &random) {
  omp_set_num_threads(threads);
  GemmCache cache(threads);
  Values a = Values::random(shape.input, shape.m * shape.k, random);
  Values b = Values::random(shape.input, shape.k * shape.n, random);
  Values bias = Values::random(shape.bias, shape.n, random);
  Values d = shape.accumulate ? Values::random(shape.output, shape.m * shape.n, random)
                              : Values(shape.output, shape.m * shape.n);
  std::vector<double> expected = reference(shape, a, b, d, bias);
  auto gemm = cache.find(shape, library);
  ASSERT_TRUE(gemm) << gemm.error().message;
  (*gemm)->run(a.data(), b.data(), d.data(), bias.data());
  EXPECT_LE(test::error(d, expected), test::tolerance(shape.output))
      << (*gemm)->implementation() << ": " << shape.m << " x " << shape.n << " x " << shape.k
      << ", transposes " << shape.transposeA << shape.transposeB << ", accumulate "
      << shape.accumulate << ", bias " << shape.hasBias << ", storage " << int(shape.input)
      << " -> " << int(shape.output);
}

TEST(Gemm, MatchesTheDefinition) {
  std::mt19937_64 random(1);
  struct Types {
    Storage input, output;
  };
  const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {33, 17, 65}, {97, 130, 40}, {6, 200, 300}};
  for (Types types : {Types{Storage::F32, Storage::F32}, Types{Storage::BF16, Storage::BF16},
                      Types{Storage::BF16, Storage::F32}, Types{Storage::F64, Storage::F64}})
    for (const auto &size : sizes)
      for (int flags = 0; flags < 16; ++flags) {
        GemmShape shape{size[0],         size[1],         size[2],         bool(flags & 1),
                        bool(flags & 2), bool(flags & 4), bool(flags & 8), types.input,
                        types.output,    types.output};
        check(shape, GemmLibrary::Automatic, 2, random);
        if (types.input == Storage::F32)
          check(shape, GemmLibrary::Packed, 2, random);
      }
}

// Beyond one block of the packed product in every direction.
TEST(Gemm, CrossesBlocks) {
  std::mt19937_64 random(2);
  for (Storage output : {Storage::BF16, Storage::F32}) {
    check({2, 1100, 40, false, true, true, false, Storage::BF16, output}, GemmLibrary::Packed, 3,
          random);
    check({2100, 9, 30, true, false, false, false, Storage::BF16, output}, GemmLibrary::Packed, 3,
          random);
    check({2050, 3, 1100, false, false, true, true, Storage::BF16, output, Storage::F32},
          GemmLibrary::Packed, 2, random);
    check({100, 140, 2100, true, true, false, true, Storage::BF16, output, Storage::BF16},
          GemmLibrary::Packed, 1, random);
  }
}

TEST(Gemm, PackedBitsDoNotDependOnThreads) {
  std::mt19937_64 random(3);
  GemmShape shape{150, 300, 1500, false, true, false, false, Storage::BF16, Storage::F32};
  Values a = Values::random(Storage::BF16, shape.m * shape.k, random);
  Values b = Values::random(Storage::BF16, shape.k * shape.n, random);
  std::vector<char> first;
  for (int threads : {1, 2, 5}) {
    GemmCache cache(threads);
    Values d(Storage::F32, shape.m * shape.n);
    auto gemm = cache.find(shape, GemmLibrary::Packed);
    ASSERT_TRUE(gemm);
    (*gemm)->run(a.data(), b.data(), d.data(), nullptr);
    if (first.empty())
      first = d.bytes;
    EXPECT_EQ(d.bytes, first) << threads << " threads";
  }
}
