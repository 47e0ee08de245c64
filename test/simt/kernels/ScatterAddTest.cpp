// The kernels of kern.scatter_add against the CPU's, and against sums in the order that they
// promise, bit for bit.
#include "runtime/device/cpu/commands/ScatterAdd.h"
#include "compiler/targets/cuda/templates/ScatterAddTemplates.h"
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

using namespace lmc;
using namespace lmc::simt;
using codegen::ScatterAddLaunch;
using codegen::ScatterAddLayout;
using codegen::ScatterAddOperand;
using codegen::ScatterAddShape;
using cpu::Storage;

namespace {

Storage storageOf(DataType type) {
  return type == DataType::F64   ? Storage::F64
         : type == DataType::F32 ? Storage::F32
                                 : Storage::BF16;
}

class ScatterAdd {
public:
  explicit ScatterAdd(const ScatterAddShape &shape, uint64_t seed = 1)
      : shape(shape), layout(shape.layout()), random(seed), launches(scatterAddKernels(shape)),
        sums(shape.x == DataType::F64 ? Storage::F64 : Storage::F32), x(storageOf(shape.x), 0),
        d(sums, 0) {
    std::vector<Source> sources;
    for (const ScatterAddLaunch &launch : launches)
      sources.push_back(sourceOf(launch.kernel));
    for (const Result<simt::Kernel> &kernel : compile(sources))
      if (kernel)
        kernels.push_back(*kernel);
      else
        ADD_FAILURE() << kernel.error().message;
  }

  // Runs the kernels twice each, and compares with the CPU.
  void check(const std::vector<int32_t> &tokens, bool count = false) {
    ASSERT_EQ(kernels.size(), launches.size());
    ids = tokens;
    x = cpu::test::Values::random(storageOf(shape.x), shape.rows * shape.columns, random);
    // Without accumulation d holds NaN before.
    d = shape.accumulate ? cpu::test::Values::random(sums, shape.vocabulary * shape.columns, random)
                         : cpu::test::Values(sums, shape.vocabulary * shape.columns);
    before = d;
    workspace.assign(size_t(layout.bytes / 64), {});
    alignedX = aligned(x);
    alignedD = aligned(d);
    traffic.clear();
    for (size_t i = 0; i < launches.size(); ++i) {
      std::vector<Argument> arguments;
      for (ScatterAddOperand operand : launches[i].args)
        arguments.push_back(argument(operand));
      RunResult result = runTwice(kernels[i], arguments, i + 1, count);
      ASSERT_EQ(result.failure, "");
      EXPECT_FALSE(result.atomics);
      traffic.push_back(result.traffic);
    }
    std::memcpy(d.data(), alignedD.data(), d.bytes.size());
    checkSorted();
    checkSums();
  }

  // Bytes that all launches moved of an operand.
  Traffic trafficOf(ScatterAddOperand operand) const {
    Traffic all;
    for (size_t i = 0; i < launches.size(); ++i)
      for (size_t arg = 0; arg < launches[i].args.size(); ++arg)
        if (launches[i].args[arg] == operand) {
          const Traffic &one = traffic[i][arg];
          all.loaded += one.loaded, all.stored += one.stored;
          all.loadSectors += one.loadSectors, all.storeSectors += one.storeSectors;
        }
    return all;
  }

  // What each launch touched is what its kernel says, and is moved once but for what comes from
  // the caches.
  void expectCounted() const {
    const int64_t counts = layout.tiles << (layout.digitBits + 2);
    for (size_t i = 0; i < launches.size(); ++i) {
      const codegen::CudaKernel &kernel = launches[i].kernel;
      SCOPED_TRACE(kernel.name);
      Traffic all;
      for (const Traffic &one : traffic[i]) {
        all.loaded += one.loaded, all.stored += one.stored;
        all.distinctLoaded += one.distinctLoaded, all.distinctStored += one.distinctStored;
      }
      EXPECT_EQ(all.distinctLoaded, kernel.bytes.read);
      EXPECT_EQ(all.distinctStored, kernel.bytes.written);
      EXPECT_EQ(all.stored, kernel.bytes.written);
      if (int64_t(i) < 2 * layout.passes) { // every block that moves pairs reads all counts
        const bool moves = i % 2;
        EXPECT_EQ(all.loaded, kernel.bytes.read + uint64_t(moves * (layout.tiles - 1) * counts));
      }
    }
  }

  // Positions of tokens of each id, ascending; ids outside of the vocabulary are left out.
  std::map<int32_t, std::vector<int64_t>> tokensOfIds() const {
    std::map<int32_t, std::vector<int64_t>> tokens;
    for (int64_t t = 0; t < shape.rows; ++t)
      if (ids[size_t(t)] >= 0 && ids[size_t(t)] < shape.vocabulary)
        tokens[ids[size_t(t)]].push_back(t);
    return tokens;
  }

  const ScatterAddShape shape;
  const ScatterAddLayout layout;

private:
  // Memory that is aligned as on a device.
  struct alignas(64) Line {
    char bytes[64] = {};
  };
  static std::vector<Line> aligned(const cpu::test::Values &values) {
    std::vector<Line> lines((values.bytes.size() + 63) / 64);
    std::memcpy(lines.data(), values.bytes.data(), values.bytes.size());
    return lines;
  }

  Argument argument(ScatterAddOperand operand) {
    switch (operand) {
    case ScatterAddOperand::Ids:
      return {ids.data(), ids.size() * 4, Access::Read};
    case ScatterAddOperand::X:
      return {alignedX.data(), x.bytes.size(), Access::Read};
    case ScatterAddOperand::Workspace:
      return {workspace.data(), workspace.size() * 64, Access::ReadWrite};
    case ScatterAddOperand::D:
      return {alignedD.data(), d.bytes.size(), Access::ReadWrite};
    }
    return {};
  }

  // The sort is stable: by id, then by position; ids of no row behind all others.
  void checkSorted() const {
    std::vector<uint32_t> expected(size_t(shape.rows));
    std::iota(expected.begin(), expected.end(), 0);
    auto key = [&](uint32_t t) {
      return std::min<uint32_t>(uint32_t(ids[t]), uint32_t(shape.vocabulary));
    };
    std::stable_sort(expected.begin(), expected.end(),
                     [&](uint32_t a, uint32_t b) { return key(a) < key(b); });
    const char *base = workspace.front().bytes;
    int64_t last = (layout.passes - 1) % 2;
    for (size_t i = 0; i < expected.size(); ++i) {
      uint32_t sortedKey, token;
      std::memcpy(&sortedKey, base + layout.keys[last] + 4 * int64_t(i), 4);
      std::memcpy(&token, base + layout.tokens[last] + 4 * int64_t(i), 4);
      ASSERT_EQ(token, expected[i]) << "at " << i;
      ASSERT_EQ(sortedKey, key(token)) << "at " << i;
    }
  }

  // The sum of one element in the promised order: from the start of the run in its range, then
  // the sums of its parts in later ranges.
  template <typename T>
  T promised(const std::vector<int64_t> &tokens, int64_t position, int32_t id,
             int64_t column) const {
    T total = shape.accumulate ? T(before[id * shape.columns + column]) : T(0), part = 0;
    bool first = true;
    for (size_t i = 0; i < tokens.size(); ++i) {
      T value = T(x[tokens[i] * shape.columns + column]);
      if (i && (position + int64_t(i)) % layout.range == 0) {
        total = first ? total : total + part;
        part = 0;
        first = false;
      }
      (first ? total : part) += value;
    }
    return first ? total : total + part;
  }

  template <typename T> void checkSumsAs() const {
    cpu::test::Values expected = before;
    cpu::scatterAdd({ids.data(), x.bytes.data(), expected.data(), x.storage, sums, shape.rows,
                     shape.columns, shape.vocabulary, shape.accumulate},
                    1);
    auto tokens = tokensOfIds();
    int64_t position = 0;
    for (int32_t id = 0; id < shape.vocabulary; ++id) {
      auto found = tokens.find(id);
      int64_t count = found == tokens.end() ? 0 : int64_t(found->second.size());
      bool split = count && position / layout.range != (position + count - 1) / layout.range;
      for (int64_t column = 0; column < shape.columns; ++column) {
        int64_t at = id * shape.columns + column;
        T actual = T(d[at]), onCpu = T(expected[at]);
        // In one range the order is the CPU's.
        if (!split) {
          ASSERT_EQ(actual, onCpu) << "id " << id << ", column " << column;
          ASSERT_EQ(std::signbit(actual), std::signbit(onCpu));
          continue;
        }
        ASSERT_EQ(actual, promised<T>(found->second, position, id, column));
        // Two orders of `count` additions; terms are below 6 by the normal distribution.
        ASSERT_NEAR(double(actual), double(onCpu),
                    2.0 * double(count) * std::numeric_limits<T>::epsilon() * 6 *
                        std::sqrt(double(count)));
      }
      position += count;
    }
  }
  void checkSums() const {
    shape.x == DataType::F64 ? checkSumsAs<double>() : checkSumsAs<float>();
  }

  std::mt19937_64 random;
  std::vector<ScatterAddLaunch> launches;
  std::vector<simt::Kernel> kernels;
  Storage sums;
  std::vector<int32_t> ids;
  cpu::test::Values x, d, before{Storage::F32, 0};
  std::vector<Line> workspace, alignedX, alignedD;
  std::vector<std::vector<Traffic>> traffic; // by launch and argument
};

std::vector<int32_t> uniform(int64_t rows, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (int32_t &id : ids)
    id = int32_t(random() % uint64_t(vocabulary));
  return ids;
}

// As in text: few ids make up most of it.
std::vector<int32_t> zipf(int64_t rows, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> part(0, std::log(double(vocabulary)));
  std::vector<int32_t> ids(static_cast<size_t>(rows));
  for (int32_t &id : ids)
    id = int32_t(std::exp(part(random))) % int32_t(vocabulary);
  return ids;
}

constexpr int64_t kRows = 700, kVocabulary = 600;

std::vector<int32_t> distinct() {
  std::vector<int32_t> ids(kRows, -1); // more tokens than ids: the others have none
  std::iota(ids.begin(), ids.begin() + kVocabulary, 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937_64(3));
  return ids;
}

// With every fifth of them no row of the vocabulary.
std::vector<int32_t> withStrangers(std::vector<int32_t> ids, int64_t vocabulary) {
  for (size_t i = 0; i < ids.size(); i += 5)
    ids[i] = std::array{-1, int32_t(vocabulary), INT32_MIN, INT32_MAX}[i / 5 % 4];
  return ids;
}

std::vector<int32_t> withStrangers() {
  return withStrangers(zipf(kRows, kVocabulary, 4), kVocabulary);
}

} // namespace

TEST(ScatterAddKernels, AddsLongRunsInOrder) {
  ScatterAdd scatter({kRows, 264, kVocabulary, DataType::BF16, true});
  scatter.check(std::vector<int32_t>(kRows, 17)); // all equal
  scatter.check(zipf(kRows, kVocabulary, 1));
  scatter.check(withStrangers());
}

TEST(ScatterAddKernels, WritesEveryRowWhereItDoesNotAccumulate) {
  ScatterAdd scatter({kRows, 37, kVocabulary, DataType::BF16, false});
  scatter.check(distinct());
  scatter.check(withStrangers());
  scatter.check(std::vector<int32_t>(kRows, -1)); // all zeros
  scatter.check(std::vector<int32_t>(kRows, int32_t(kVocabulary) - 1));
}

TEST(ScatterAddKernels, TakesWiderTypes) {
  ScatterAdd({kRows, 72, kVocabulary, DataType::F32, false}).check(zipf(kRows, kVocabulary, 2));
  ScatterAdd({kRows, 18, kVocabulary, DataType::F64, true}).check(zipf(kRows, kVocabulary, 3));
}

TEST(ScatterAddKernels, TakesOneToken) {
  ScatterAdd scatter({1, 5, 1, DataType::F32, false});
  scatter.check({0});
  scatter.check({1});
}

TEST(ScatterAddKernels, SortsInSeveralPasses) {
  ScatterAdd two({9000, 8, 40000, DataType::BF16, true});
  EXPECT_EQ(two.layout.passes, 2);
  EXPECT_GT(two.layout.tile, two.layout.threads);
  two.check(zipf(9000, 40000, 5));
  const int64_t many = (1 << 20) + 3;
  ScatterAdd three({300, 1, many, DataType::F32, true});
  EXPECT_EQ(three.layout.passes, 3);
  three.check(uniform(300, many, 6));
}

TEST(ScatterAddKernels, TakesDrawnShapes) {
  for (int64_t seed = 1, last = drawCount(10); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    ScatterAddShape shape;
    shape.columns = draw.extent(600);
    shape.rows = draw.extent(3000);
    shape.vocabulary = draw.extent(draw.pick({60, 3000}));
    shape.x = draw.pick({DataType::BF16, DataType::BF16, DataType::F32, DataType::F64});
    shape.accumulate = draw.oneIn(2);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + std::to_string(shape.rows) +
                 " tokens of " + std::to_string(shape.columns) + " x " +
                 std::to_string(8 * elementBytes(storageOf(shape.x))) + " bits, vocabulary " +
                 std::to_string(shape.vocabulary) + (shape.accumulate ? ", accumulated" : ""));
    ScatterAdd scatter(shape, uint64_t(seed));
    std::vector<int32_t> ids = draw.oneIn(2) ? uniform(shape.rows, shape.vocabulary, seed)
                                             : zipf(shape.rows, shape.vocabulary, seed);
    scatter.check(draw.oneIn(3) ? withStrangers(ids, shape.vocabulary) : ids);
    if (HasFatalFailure())
      return;
  }
}

// x is read once and d written once, but for runs in several ranges, whose rows are written
// again; whole sectors where rows are made of them.
TEST(ScatterAddKernels, MovesEachByteOnce) {
  ScatterAdd scatter({kRows, 256, kVocabulary, DataType::BF16, false});
  scatter.check(zipf(kRows, kVocabulary, 1), /*count=*/true);
  int64_t position = 0, again = 0, used = 0;
  for (const auto &[id, tokens] : scatter.tokensOfIds()) {
    int64_t end = position + int64_t(tokens.size());
    again += position / scatter.layout.range != (end - 1) / scatter.layout.range;
    used += int64_t(tokens.size());
    position = end;
  }
  ASSERT_GT(again, 0);
  Traffic x = scatter.trafficOf(ScatterAddOperand::X), d = scatter.trafficOf(ScatterAddOperand::D);
  EXPECT_EQ(x.loaded, uint64_t(used * 256 * 2));
  EXPECT_EQ(x.loadSectors * 32, x.loaded);
  EXPECT_EQ(d.stored, uint64_t((kVocabulary + again) * 256 * 4));
  EXPECT_EQ(d.storeSectors * 32, d.stored);
  EXPECT_EQ(d.loaded, uint64_t(again * 256 * 4));
}

// With ids as different as can be.
TEST(ScatterAddKernels, CountWhatTheyMove) {
  for (const ScatterAddShape &shape : {ScatterAddShape{512, 264, 600, DataType::BF16, false},
                                       {512, 40, 256, DataType::F32, true},
                                       {9000, 8, 40000, DataType::BF16, false}}) {
    ScatterAdd scatter(shape);
    std::vector<int32_t> ids(size_t(shape.rows));
    for (int64_t row = 0; row < shape.rows; ++row)
      ids[size_t(row)] = int32_t(row % shape.vocabulary);
    std::shuffle(ids.begin(), ids.end(), std::mt19937_64(7));
    scatter.check(ids, /*count=*/true);
    scatter.expectCounted();
  }
}

TEST(ScatterAddLayout, KeepsItsPartsApart) {
  for (int64_t rows : {1, 63, 8192, 8193, 32768, 131072})
    for (int64_t vocabulary : {1, 31, 1023, 1024, 131072, 262144, 1 << 21}) {
      ScatterAddLayout layout = codegen::scatterAddLayout(rows, 100, vocabulary, 4);
      EXPECT_GE(layout.tile * layout.tiles, rows);
      EXPECT_GT(int64_t(1) << (layout.digitBits * layout.passes), vocabulary);
      EXPECT_LE(layout.digitBits, 10);
      std::vector<std::pair<int64_t, int64_t>> parts{
          {layout.keys[0], rows * 4},
          {layout.tokens[0], rows * 4},
          {layout.counts, layout.tiles << (layout.digitBits + 2)},
          {layout.partials, layout.ranges * 100 * 4}};
      if (layout.passes > 1) {
        parts.push_back({layout.keys[1], rows * 4});
        parts.push_back({layout.tokens[1], rows * 4});
      }
      std::sort(parts.begin(), parts.end());
      for (size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(parts[i].first % 64, 0);
        EXPECT_LE(parts[i].first + parts[i].second,
                  i + 1 < parts.size() ? parts[i + 1].first : layout.bytes);
      }
    }
}
