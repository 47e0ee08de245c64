#include "runtime/device/GemmChoices.h"
#include "test/runtime/device/cpu/Values.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <set>

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

// Checks the product by each of `libraries`, or by all that have it.
static void check(GemmShape shape, int threads, std::mt19937_64 &random,
                  std::vector<GemmLibrary> libraries = {}) {
  omp_set_num_threads(threads);
  GemmCache cache(threads);
  if (libraries.empty()) {
    auto all = cache.libraries(shape);
    ASSERT_TRUE(all) << all.error().message;
    libraries = *all;
  }
  Values a = Values::random(shape.input, shape.m * shape.k, random);
  Values b = Values::random(shape.input, shape.k * shape.n, random);
  Values bias = Values::random(shape.bias, shape.n, random);
  Values before = shape.accumulate ? Values::random(shape.output, shape.m * shape.n, random)
                                   : Values(shape.output, shape.m * shape.n);
  std::vector<double> expected = reference(shape, a, b, before, bias);
  for (GemmLibrary library : libraries) {
    auto gemm = cache.find(shape, library);
    ASSERT_TRUE(gemm) << gemm.error().message;
    std::vector<char> first;
    for (int run = 0; run < 2; ++run) {
      Values d = before;
      (*gemm)->run(a.data(), b.data(), d.data(), bias.data());
      EXPECT_LE(lmc::cpu::test::error(d, expected), lmc::cpu::test::tolerance(shape.output))
          << nameOf(library) << " (" << (*gemm)->implementation() << "): " << describe(shape);
      if (run == 0)
        first = d.bytes;
      EXPECT_EQ(d.bytes, first) << nameOf(library) << " repeats its bits: " << describe(shape);
    }
  }
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
        check(shape, 2, random);
      }
}

// Beyond one block of the packed product in every direction.
TEST(Gemm, CrossesBlocks) {
  std::mt19937_64 random(2);
  for (Storage output : {Storage::BF16, Storage::F32}) {
    check({2, 1100, 40, false, true, true, false, Storage::BF16, output}, 3, random,
          {GemmLibrary::Packed});
    check({2100, 9, 30, true, false, false, false, Storage::BF16, output}, 3, random,
          {GemmLibrary::Packed});
    check({2050, 3, 1100, false, false, true, true, Storage::BF16, output, Storage::F32}, 2, random,
          {GemmLibrary::Packed});
    check({100, 140, 2100, true, true, false, true, Storage::BF16, output, Storage::BF16}, 1,
          random, {GemmLibrary::Packed});
  }
}

// The fixed choice. The sizes are those at which oneDNN 2.6 divides the sum over k among threads.
TEST(Gemm, DefaultBitsDoNotDependOnThreads) {
  std::mt19937_64 random(3);
  const int64_t sizes[][3] = {{64, 64, 64}, {150, 300, 1500}, {64, 128, 4096}, {1, 40, 2100}};
  for (auto [input, output] : {std::pair(Storage::F32, Storage::F32),
                               std::pair(Storage::BF16, Storage::F32),
                               std::pair(Storage::BF16, Storage::BF16),
                               std::pair(Storage::F64, Storage::F64)})
    for (const auto &size : sizes)
      for (int transposes = 0; transposes < 4; ++transposes) {
        const GemmShape shape{size[0], size[1], size[2],      bool(transposes & 1),
                              bool(transposes & 2), false, false, input, output};
        Values a = Values::random(input, shape.m * shape.k, random);
        Values b = Values::random(input, shape.k * shape.n, random);
        std::vector<char> first;
        for (int threads : {1, 2, 3, 4}) {
          omp_set_num_threads(threads);
          GemmCache cache(threads);
          Values d(output, shape.m * shape.n);
          auto gemm = cache.find(shape);
          ASSERT_TRUE(gemm);
          (*gemm)->run(a.data(), b.data(), d.data(), nullptr);
          if (first.empty())
            first = d.bytes;
          EXPECT_TRUE(d.bytes == first) << threads << " threads: " << describe(shape);
        }
      }
}

// Another order of threads, other addresses and another process state must not change a bit, for
// every library that a choice may name.
TEST(Gemm, BitsRepeatAtOtherAddresses) {
  std::mt19937_64 random(4);
  omp_set_num_threads(2);
  for (bool accumulate : {false, true}) {
    GemmShape shape{384, 640, 1500, false, true, accumulate};
    const Values a = Values::random(Storage::F32, shape.m * shape.k, random);
    const Values b = Values::random(Storage::F32, shape.k * shape.n, random);
    const Values d = Values::random(Storage::F32, shape.m * shape.n, random);
    auto libraries = GemmCache(2).libraries(shape);
    ASSERT_TRUE(libraries);
    for (GemmLibrary library : *libraries) {
      std::vector<char> first;
      for (int run = 0; run < 6; ++run) {
        GemmCache cache(2);
        auto gemm = cache.find(shape, library);
        ASSERT_TRUE(gemm);
        // The operands of a plan start at multiples of 64 bytes.
        auto copy = [&](const Values &values) {
          std::vector<char> memory(values.bytes.size() + 64 * 8);
          char *start = memory.data();
          start += (64 - reinterpret_cast<uintptr_t>(start) % 64) % 64 + 64 * size_t(run);
          std::memcpy(start, values.bytes.data(), values.bytes.size());
          return std::pair(std::move(memory), start);
        };
        auto [aMemory, aStart] = copy(a);
        auto [bMemory, bStart] = copy(b);
        auto [dMemory, dStart] = copy(d);
        (*gemm)->run(aStart, bStart, dStart, nullptr);
        std::vector<char> result(dStart, dStart + d.bytes.size());
        if (first.empty())
          first = result;
        EXPECT_TRUE(result == first) << nameOf(library) << ", run " << run;
      }
    }
  }
}

TEST(Gemm, MeasuresAShapeOnceAndTakesTheChoiceAgain) {
  omp_set_num_threads(2);
  const GemmShape shape{256, 192, 320, false, true};
  lmc::GemmChoices choices(/*measures=*/true);
  GemmCache first(2, &choices);
  auto fastest = first.find(shape);
  ASSERT_TRUE(fastest) << fastest.error().message;
  ASSERT_EQ(choices.inUse().size(), 1u);
  const auto use = choices.inUse()[0];
  EXPECT_EQ(use.key.product, "f32 256x192x320 b^T");
  EXPECT_NE(use.key.device.find("2 threads, kernels "), std::string::npos) << use.key.device;
  EXPECT_GT(use.choice.seconds, 0);
  EXPECT_EQ(first.find(shape) ? *first.find(shape) : nullptr, *fastest);

  // A recorded choice is taken, whether it is the fastest or not.
  auto libraries = first.libraries(shape);
  ASSERT_TRUE(libraries);
  for (bool measures : {true, false})
    for (GemmLibrary library : *libraries) {
      lmc::GemmChoices recorded(measures);
      recorded.add(use.key, {nameOf(library), "", 1}, 0);
      GemmCache cache(2, &recorded);
      auto gemm = cache.find(shape);
      ASSERT_TRUE(gemm);
      EXPECT_EQ((*gemm)->implementation(), (*first.find(shape, library))->implementation());
      EXPECT_EQ(recorded.inUse()[0].choice.seconds, 1) << "it is not measured again";
    }
  // A name that no library here has.
  lmc::GemmChoices strange(/*measures=*/false);
  strange.add(use.key, {"another", "", 1}, 0);
  GemmCache cache(2, &strange);
  ASSERT_TRUE(cache.find(shape));
  EXPECT_EQ(strange.inUse()[0].choice.implementation, "packed");
}

TEST(Gemm, DifferentShapesHaveDifferentTexts) {
  std::set<std::string> texts;
  int shapes = 0;
  for (int flags = 0; flags < 16; ++flags)
    for (Storage storage : {Storage::F32, Storage::BF16, Storage::F64})
      for (Storage output : {Storage::F32, Storage::BF16, Storage::F64})
        for (int64_t m : {1, 11}) {
          texts.insert(describe({m, 1, 1, bool(flags & 1), bool(flags & 2), bool(flags & 4),
                                 bool(flags & 8), storage, output}));
          ++shapes;
        }
  EXPECT_EQ(int(texts.size()), shapes);
}
