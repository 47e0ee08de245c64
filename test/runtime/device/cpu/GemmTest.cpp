#include "runtime/device/GemmChoices.h"
#include "runtime/device/cpu/CpuMachine.h"
#include "runtime/device/cpu/gemm/Implementations.h"
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

// The packed kernels of every instruction set that this machine has; bf16 instructions multiply
// pairs of elements, so an odd k is one of the sizes.
TEST(Gemm, EveryKernelSetMatchesTheDefinition) {
  std::mt19937_64 random(5);
  omp_set_num_threads(2);
  const int64_t sizes[][3] = {{1, 1, 1}, {25, 67, 33}, {26, 130, 300}, {24, 64, 1281}};
  for (auto [input, output] :
       {std::pair(Storage::F32, Storage::F32), std::pair(Storage::BF16, Storage::F32),
        std::pair(Storage::BF16, Storage::BF16)})
    for (const auto &size : sizes)
      for (int flags = 0; flags < 8; ++flags) {
        const GemmShape shape{size[0],         size[1], size[2], bool(flags & 1), bool(flags & 2),
                              bool(flags & 4), false,   input,   output};
        Values a = Values::random(input, shape.m * shape.k, random);
        Values b = Values::random(input, shape.k * shape.n, random);
        const Values before = Values::random(output, shape.m * shape.n, random);
        const std::vector<double> expected = reference(shape, a, b, before, before);
        for (const KernelSet *set : kernelSets()) {
          PackedBuffers buffers;
          Values d = before;
          makePackedGemm(shape, 2, buffers, *set)->run(a.data(), b.data(), d.data(), nullptr);
          EXPECT_LE(lmc::cpu::test::error(d, expected), lmc::cpu::test::tolerance(output))
              << set->name << ": " << describe(shape);
        }
      }
}

// The operands of a group: those of its parts, one after the other.
struct Group {
  GemmGroupShape shape;
  std::vector<int64_t> sizes; // the m, or the k, of each part
  Values a, b, before;

  Group(GemmGroupShape wanted, std::vector<int64_t> sizes, std::mt19937_64 &random)
      : shape(wanted), sizes(std::move(sizes)), a(shape.shape.input, 0), b(shape.shape.input, 0),
        before(shape.shape.output, 0) {
    int64_t ofA = 0, ofB = 0, ofD = 0;
    for (const GemmShape &part : parts()) {
      ofA += part.m * part.k;
      ofB += part.k * part.n;
      ofD += part.m * part.n;
    }
    a = Values::random(shape.shape.input, ofA, random);
    b = Values::random(shape.shape.input, ofB, random);
    before = Values::random(shape.shape.output, ofD, random);
  }

  std::vector<GemmShape> parts() const {
    std::vector<GemmShape> all;
    for (int64_t size : sizes) {
      all.push_back(shape.shape);
      (shape.split == GemmGroupShape::Split::M ? all.back().m : all.back().k) = size;
    }
    return all;
  }

  // Calls visit(shape, a, b, d) for each part, the last three as positions in bytes.
  template <typename Visit> void forParts(Visit visit) const {
    int64_t atA = 0, atB = 0, atD = 0;
    for (const GemmShape &part : parts()) {
      visit(part, atA, atB, atD);
      atA += part.m * part.k * elementBytes(part.input);
      atB += part.k * part.n * elementBytes(part.input);
      atD += part.m * part.n * elementBytes(part.output);
    }
  }

  // Returns d after one run.
  Values run(GemmGroup &product) {
    Values d = before;
    std::vector<GemmPart> operands;
    forParts([&](const GemmShape &part, int64_t atA, int64_t atB, int64_t atD) {
      operands.push_back({a.data() + atA, b.data() + atB, d.data() + atD, part.m, part.k});
    });
    product.run(operands);
    return d;
  }

  std::vector<double> expected() const {
    std::vector<double> all;
    auto piece = [](const Values &values, int64_t from, int64_t elements) {
      Values part(values.storage, elements);
      if (elements > 0)
        std::memcpy(part.data(), values.bytes.data() + from, part.bytes.size());
      return part;
    };
    forParts([&](const GemmShape &part, int64_t atA, int64_t atB, int64_t atD) {
      const Values d = piece(before, atD, part.m * part.n);
      const std::vector<double> own =
          reference(part, piece(a, atA, part.m * part.k), piece(b, atB, part.k * part.n), d, d);
      all.insert(all.end(), own.begin(), own.end());
    });
    return all;
  }
};

// As the experts of a layer use them: forward, gradient of the rows, gradient of the weights.
static std::vector<GemmGroupShape> groupShapes(int64_t rows, int64_t n, int64_t other,
                                               int64_t parts) {
  using Split = GemmGroupShape::Split;
  std::vector<GemmGroupShape> shapes;
  for (auto [input, sums] :
       {std::pair(Storage::F32, Storage::F32), std::pair(Storage::BF16, Storage::F32),
        std::pair(Storage::F64, Storage::F64)}) {
    for (bool transposed : {false, true})
      shapes.push_back(
          {{rows, n, other, false, transposed, false, false, input, input}, parts, Split::M});
    for (bool accumulate : {false, true})
      shapes.push_back(
          {{other, n, rows, true, false, accumulate, false, input, sums}, parts, Split::K});
  }
  return shapes;
}

TEST(GemmGroup, MatchesTheDefinitionByEveryLibrary) {
  std::mt19937_64 random(6);
  omp_set_num_threads(2);
  const std::vector<int64_t> sizes[] = {
      {20, 21, 19, 20}, // balanced
      {0, 70, 1, 9},    // most rows on one expert, none on another
      {0, 0, 80, 0},    // all rows on one expert
      {0, 0, 0, 0},
  };
  for (const auto &parts : sizes)
    for (const GemmGroupShape &shape : groupShapes(80, 70, 37, 4)) {
      Group group(shape, parts, random);
      const std::vector<double> expected = group.expected();
      GemmCache cache(2);
      auto libraries = cache.libraries(shape);
      ASSERT_TRUE(libraries);
      EXPECT_TRUE(std::count(libraries->begin(), libraries->end(), GemmLibrary::Packed));
      for (GemmLibrary library : *libraries) {
        auto product = cache.find(shape, library);
        ASSERT_TRUE(product);
        const Values d = group.run(**product);
        EXPECT_LE(lmc::cpu::test::error(d, expected), lmc::cpu::test::tolerance(shape.shape.output))
            << nameOf(library) << ": " << describe(shape);
        EXPECT_EQ(group.run(**product).bytes, d.bytes) << nameOf(library) << " repeats its bits";
      }
    }
}

// The fixed choice: equal bits on any number of threads, and those of one product after the other.
TEST(GemmGroup, DefaultBitsAreThoseOfSingleProducts) {
  std::mt19937_64 random(7);
  for (const GemmGroupShape &shape : groupShapes(1300, 700, 530, 3)) {
    Group group(shape, {900, 0, 400}, random);
    Values alone = group.before;
    group.forParts([&](const GemmShape &part, int64_t atA, int64_t atB, int64_t atD) {
      if (part.k == 0 && !part.accumulate)
        std::memset(alone.data() + atD, 0, size_t(part.m * part.n * elementBytes(part.output)));
      if (part.m == 0 || part.k == 0)
        return;
      omp_set_num_threads(2);
      GemmCache cache(2);
      auto gemm = cache.find(part);
      ASSERT_TRUE(gemm);
      (*gemm)->run(group.a.data() + atA, group.b.data() + atB, alone.data() + atD, nullptr);
    });
    for (int threads : {1, 2, 3, 5}) {
      omp_set_num_threads(threads);
      GemmCache cache(threads);
      auto product = cache.find(shape);
      ASSERT_TRUE(product);
      EXPECT_TRUE(group.run(**product).bytes == alone.bytes)
          << threads << " threads: " << describe(shape);
    }
  }
}

// Results that are larger than the caches are written past them, unless they are added to. One of
// the widths is no multiple of a cache line.
TEST(GemmGroup, WritesLargeResults) {
  std::mt19937_64 random(8);
  omp_set_num_threads(2);
  for (int64_t n : {2000, 2001})
    for (bool accumulate : {false, true})
      for (Storage input : {Storage::F32, Storage::BF16}) {
        const GemmGroupShape shape{
            {2400, n, 5, true, false, accumulate, false, input, Storage::F32},
            2,
            GemmGroupShape::Split::K};
        Group group(shape, {3, 2}, random);
        // The results of a plan start at multiples of 64 bytes; a vector's need not.
        Values d(Storage::F32, 16 + 2 * 2400 * n);
        const size_t to64 = (64 - reinterpret_cast<uintptr_t>(d.data()) % 64) % 64;
        char *start = d.data() + to64;
        std::memcpy(start, group.before.data(), group.before.bytes.size());
        std::vector<GemmPart> parts;
        group.forParts([&](const GemmShape &part, int64_t atA, int64_t atB, int64_t atD) {
          parts.push_back(
              {group.a.data() + atA, group.b.data() + atB, start + atD, part.m, part.k});
        });
        PackedBuffers buffers;
        makePackedGroup(shape, 2, buffers)->run(parts);
        std::memmove(d.data(), start, group.before.bytes.size());
        d.bytes.resize(group.before.bytes.size());
        EXPECT_LE(lmc::cpu::test::error(d, group.expected()),
                  lmc::cpu::test::tolerance(Storage::F32))
            << describe(shape);
      }
}

TEST(GemmGroup, MeasuresAShapeOnce) {
  omp_set_num_threads(2);
  const GemmGroupShape shape{{300, 64, 96, false, true}, 7, GemmGroupShape::Split::M};
  lmc::GemmChoices choices(/*measures=*/true);
  GemmCache first(2, &choices);
  auto fastest = first.find(shape);
  ASSERT_TRUE(fastest) << fastest.error().message;
  ASSERT_EQ(choices.inUse().size(), 1u);
  const auto use = choices.inUse()[0];
  EXPECT_EQ(use.key.product, "f32 300x64x96 b^T, m in 7 parts");
  EXPECT_GT(use.choice.seconds, 0);
  auto libraries = first.libraries(shape);
  ASSERT_TRUE(libraries);
  for (GemmLibrary library : *libraries) {
    lmc::GemmChoices recorded(/*measures=*/true);
    recorded.add(use.key, {nameOf(library), "", 1}, 0);
    GemmCache cache(2, &recorded);
    auto product = cache.find(shape);
    ASSERT_TRUE(product);
    EXPECT_EQ((*product)->implementation(), (*first.find(shape, library))->implementation());
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
          texts.insert(describe(GemmShape{m, 1, 1, bool(flags & 1), bool(flags & 2),
                                          bool(flags & 4), bool(flags & 8), storage, output}));
          ++shapes;
        }
  EXPECT_EQ(int(texts.size()), shapes);
}
