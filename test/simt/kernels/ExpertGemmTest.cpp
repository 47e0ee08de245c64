// The kernels of products of rows with the matrix of their expert against sums in f64.
#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

using namespace lmc;
using namespace lmc::simt;
using codegen::CudaKernel;
using codegen::ExpertGemmShape;
using cpu::Storage;

namespace {

Storage expertStorage(DataType type) {
  return type == DataType::F64   ? Storage::F64
         : type == DataType::F32 ? Storage::F32
                                 : Storage::BF16;
}

// Memory that is aligned as on a device.
struct alignas(64) ExpertLine {
  char bytes[64] = {};
};
std::vector<ExpertLine> alignedLines(const cpu::test::Values &values) {
  std::vector<ExpertLine> lines((values.bytes.size() + 63) / 64);
  std::memcpy(lines.data(), values.bytes.data(), values.bytes.size());
  return lines;
}

// Offsets of `counts` rows for each expert.
std::vector<int32_t> expertOffsets(const std::vector<int64_t> &counts) {
  std::vector<int32_t> offsets{0};
  for (int64_t count : counts)
    offsets.push_back(offsets.back() + int32_t(count));
  return offsets;
}

std::vector<int64_t> balancedRows(int64_t rows, int64_t experts) {
  std::vector<int64_t> counts;
  for (int64_t e = 0; e < experts; ++e)
    counts.push_back(rows * (e + 1) / experts - rows * e / experts);
  return counts;
}

std::vector<int64_t> allRowsTo(int64_t rows, int64_t experts, int64_t one) {
  std::vector<int64_t> counts(static_cast<size_t>(experts), 0);
  counts[size_t(one)] = rows;
  return counts;
}

// Some experts get most of the rows, and some none.
std::vector<int64_t> drawnRows(int64_t rows, int64_t experts, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> counts(static_cast<size_t>(experts), 0);
  for (int64_t row = 0; row < rows; ++row)
    ++counts[size_t(double(experts) * std::pow(double(random() % 10000) / 10000, 3))];
  std::shuffle(counts.begin(), counts.end(), random);
  return counts;
}

class ExpertGemm {
public:
  explicit ExpertGemm(const ExpertGemmShape &shape, bool isGrad, uint64_t seed = 1)
      : shape(shape), isGrad(isGrad), random(seed),
        text(isGrad ? expertGemmGradKernel(shape) : expertGemmKernel(shape)) {
    auto compiled = compile(std::vector<Source>{sourceOf(text)});
    if (compiled.front())
      kernel.push_back(*compiled.front());
    else
      ADD_FAILURE() << compiled.front().error().message;
  }

  void check(const std::vector<int64_t> &counts, bool count = false, uint64_t order = 1) {
    ASSERT_EQ(kernel.size(), 1u);
    offsets = expertOffsets(counts);
    ASSERT_EQ(offsets.back(), shape.rows);
    const Storage type = expertStorage(shape.type), sums = expertStorage(shape.sumType());
    const int64_t matrices = shape.experts * shape.inner * shape.columns;
    cpu::test::Values first = cpu::test::Values::random(
        type, shape.rows * (isGrad ? shape.columns : shape.inner), random);
    cpu::test::Values second =
        cpu::test::Values::random(type, isGrad ? shape.rows * shape.inner : matrices, random);
    // What is not added to holds NaN before.
    cpu::test::Values result = !isGrad ? cpu::test::Values(type, shape.rows * shape.columns)
                               : shape.accumulate
                                   ? cpu::test::Values::random(sums, matrices, random)
                                   : cpu::test::Values(sums, matrices);
    const std::vector<double> expected =
        isGrad ? gradient(first, second, result) : products(first, second);
    auto a = alignedLines(first), b = alignedLines(second), d = alignedLines(result);
    RunResult run = runTwice(kernel.front(),
                             {{a.data(), first.bytes.size(), Access::Read},
                              {b.data(), second.bytes.size(), Access::Read},
                              {offsets.data(), offsets.size() * 4, Access::Read},
                              {d.data(), result.bytes.size(), Access::ReadWrite}},
                             order, count);
    ASSERT_EQ(run.failure, "");
    EXPECT_FALSE(run.atomics);
    std::memcpy(result.data(), d.data(), result.bytes.size());
    // Sums of f32, then one rounding.
    const double allowed = shape.type == DataType::F64       ? 1e-13
                           : result.storage == Storage::BF16 ? 4e-3
                                                             : 2e-5;
    EXPECT_LE(cpu::test::error(result, expected), allowed);
    traffic = run.traffic;
  }

  const ExpertGemmShape shape;
  const bool isGrad;
  std::mt19937_64 random;
  const CudaKernel text;
  std::vector<int32_t> offsets;
  std::vector<Traffic> traffic;

private:
  std::vector<double> products(const cpu::test::Values &x, const cpu::test::Values &w) const {
    std::vector<double> y(static_cast<size_t>(shape.rows * shape.columns), 0);
    for (int64_t e = 0; e < shape.experts; ++e)
      for (int64_t r = offsets[size_t(e)]; r < offsets[size_t(e) + 1]; ++r)
        for (int64_t c = 0; c < shape.columns; ++c) {
          double sum = 0;
          for (int64_t k = 0; k < shape.inner; ++k)
            sum += x[r * shape.inner + k] *
                   w[e * shape.inner * shape.columns +
                     (shape.transposed ? k * shape.columns + c : c * shape.inner + k)];
          y[size_t(r * shape.columns + c)] = sum;
        }
    return y;
  }

  std::vector<double> gradient(const cpu::test::Values &dy, const cpu::test::Values &x,
                               const cpu::test::Values &before) const {
    std::vector<double> d(static_cast<size_t>(before.size()), 0);
    if (shape.accumulate)
      for (size_t i = 0; i < d.size(); ++i)
        d[i] = before[int64_t(i)];
    for (int64_t e = 0; e < shape.experts; ++e)
      for (int64_t r = offsets[size_t(e)]; r < offsets[size_t(e) + 1]; ++r)
        for (int64_t c = 0; c < shape.columns; ++c)
          for (int64_t k = 0; k < shape.inner; ++k)
            d[size_t((e * shape.columns + c) * shape.inner + k)] +=
                dy[r * shape.columns + c] * x[r * shape.inner + k];
    return d;
  }

  std::vector<simt::Kernel> kernel;
};

void checkExperts(const ExpertGemmShape &shape) {
  for (bool isGrad : {false, true}) {
    SCOPED_TRACE(isGrad ? "gradient" : "products");
    ExpertGemm gemm(shape, isGrad);
    gemm.check(balancedRows(shape.rows, shape.experts));
    gemm.check(allRowsTo(shape.rows, shape.experts, 0));
    gemm.check(allRowsTo(shape.rows, shape.experts, shape.experts - 1));
    gemm.check(drawnRows(shape.rows, shape.experts, 3));
  }
}

} // namespace

TEST(ExpertGemmKernels, TensorCores) {
  checkExperts({300, 5, 72, 136, DataType::BF16, false, false});
  checkExperts({300, 5, 136, 72, DataType::BF16, true, true});
  checkExperts({129, 3, 32, 8, DataType::BF16, true, false});
}

// Tiles of 128 x 256 and slices of 64: sizes below one, of several, and between.
TEST(ExpertGemmKernels, Warpgroups) {
  checkExperts({300, 5, 72, 136, DataType::BF16, false, false, true});
  checkExperts({300, 5, 136, 264, DataType::BF16, true, true, true});
  checkExperts({129, 3, 456, 8, DataType::BF16, true, false, true});
  checkExperts({260, 2, 512, 256, DataType::BF16, false, true, true});
}

// Blocks that stay on their SMs: more than tiles, and fewer.
TEST(ExpertGemmKernels, PersistentBlocks) {
  for (int64_t blocks : {1, 3, 40}) {
    checkExperts({300, 5, 72, 136, DataType::BF16, false, false, true, blocks});
    checkExperts({260, 2, 264, 520, DataType::BF16, true, false, true, blocks});
    checkExperts({3, 70, 16, 16, DataType::BF16, false, false, true, blocks});
  }
}

TEST(ExpertGemmKernels, GradientsBeginWithTheExpertOfTheMostRows) {
  for (int64_t experts : {1, 7, 32, 64, 70, 128}) {
    Source source;
    source.name = "order";
    source.text = fmt::format(
        "#include \"lmc/expert_gemm.cuh\"\nusing namespace lmc;\n"
        "extern \"C\" __global__ void __launch_bounds__(32) order(const i32 *offsets, i32 *y) {{\n"
        "  const int expert = experts::expertOfRank<{}>(offsets, int(blockIdx.x));\n"
        "  if (threadIdx.x == 0)\n    storeOne(y + blockIdx.x, expert);\n}}\n",
        experts);
    source.grid = {uint32_t(experts), 1, 1};
    source.threads = 32;
    auto kernel = compile(source);
    ASSERT_TRUE(kernel) << kernel.error().message;
    for (uint64_t seed = 1; seed < 5; ++seed) {
      // Many experts have equally many rows.
      const std::vector<int64_t> counts = seed == 1 ? balancedRows(3 * experts, experts)
                                                    : drawnRows(3 * experts, experts, seed);
      std::vector<int32_t> offsets = expertOffsets(counts), order(static_cast<size_t>(experts), -1);
      ASSERT_EQ(runTwice(*kernel,
                         {{offsets.data(), offsets.size() * 4, Access::Read},
                          {order.data(), order.size() * 4, Access::Write}},
                         seed)
                    .failure,
                "");
      std::vector<int32_t> expected(static_cast<size_t>(experts));
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](int32_t a, int32_t b) {
        return counts[size_t(a)] > counts[size_t(b)];
      });
      EXPECT_EQ(order, expected) << experts;
    }
  }
}

// Small shapes, in which each warpgroup has rows of two experts and the ring of tiles goes round: 200
// orders of threads, copies and products.
TEST(ExpertGemmKernels, WarpgroupsInDrawnOrders) {
  ExpertGemm product({140, 2, 328, 136, DataType::BF16, false, false, true}, false);
  ExpertGemm persistent({140, 2, 328, 136, DataType::BF16, false, false, true, 2}, false);
  ExpertGemm gradient({340, 2, 72, 136, DataType::BF16, false, true, true}, true);
  const int64_t orders = lmc::test::drawCount(200);
  for (int64_t order = 1; order <= orders; ++order) {
    ExpertGemm &gemm = order % 3 == 0 ? persistent : order % 3 == 1 ? product : gradient;
    gemm.check(drawnRows(gemm.shape.rows, 2, uint64_t(order)), false, uint64_t(order));
    if (HasFatalFailure() || HasNonfatalFailure())
      FAIL() << "order " << order;
  }
}

TEST(ExpertGemmKernels, OtherTypesAndSizes) {
  checkExperts({70, 4, 37, 41, DataType::BF16, false, true});
  checkExperts({70, 4, 40, 33, DataType::F32, true, false});
  checkExperts({70, 4, 9, 65, DataType::F64, false, true});
}

TEST(ExpertGemmKernels, FewRowsAndManyExperts) {
  checkExperts({1, 1, 8, 8, DataType::BF16, false, false});
  checkExperts({3, 70, 16, 16, DataType::BF16, false, true});
  ExpertGemm({200, 130, 16, 8, DataType::BF16}, false).check(drawnRows(200, 130, 5));
  ExpertGemm({130, 200, 5, 3, DataType::F32}, false).check(drawnRows(130, 200, 6));
}

// The grid has a block for each tile of any offsets: each row is computed, so the worst are those
// with one row more than whole tiles.
TEST(ExpertGemmKernels, TheGridIsLargeEnough) {
  ExpertGemm tiled({128 + 4 * 129, 8, 8, 8, DataType::BF16}, false);
  tiled.check({129, 129, 129, 129, 125, 1, 1, 1});
  tiled.check({1, 1, 1, 1, 1, 1, 1, 637});
  ExpertGemm plain({4 * 33 + 4, 8, 3, 3, DataType::F32}, false);
  plain.check({33, 33, 33, 33, 1, 1, 1, 1});
}

TEST(ExpertGemmKernels, DrawnShapes) {
  for (int64_t seed = 1, last = drawCount(12); seed <= last; ++seed) {
    Draw draw{uint64_t(seed)};
    ExpertGemmShape shape;
    shape.rows = draw.extent(500);
    shape.experts = draw.extent(80);
    shape.inner = draw.extent(200);
    shape.columns = draw.extent(200);
    shape.type = draw.pick({DataType::BF16, DataType::BF16, DataType::F32, DataType::F64});
    if (draw.oneIn(2)) {
      shape.inner = (shape.inner + 7) / 8 * 8;
      shape.columns = (shape.columns + 7) / 8 * 8;
    }
    const bool isGrad = draw.oneIn(2);
    shape.accumulate = isGrad && draw.oneIn(2);
    shape.transposed = !isGrad && draw.oneIn(2);
    shape.warpgroups = draw.oneIn(2);
    shape.blocks = draw.oneIn(2) ? draw.extent(9) : 0;
    ExpertGemm gemm(shape, isGrad, uint64_t(seed));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + gemm.text.name);
    gemm.check(drawnRows(shape.rows, shape.experts, uint64_t(seed)));
    if (HasFatalFailure())
      return;
  }
}

// With rows for each expert, every byte is needed, and none else is touched.
TEST(ExpertGemmKernels, CountWhatTheyMove) {
  for (bool isGrad : {false, true})
    for (const ExpertGemmShape &shape :
         {ExpertGemmShape{300, 5, 72, 136, DataType::BF16, false, isGrad},
          ExpertGemmShape{300, 5, 72, 136, DataType::BF16, !isGrad, isGrad, true},
          ExpertGemmShape{300, 5, 72, 136, DataType::BF16, !isGrad, isGrad, true, 3},
          ExpertGemmShape{300, 5, 40, 33, DataType::F32, !isGrad, false}}) {
      ExpertGemm gemm(shape, isGrad);
      gemm.check(balancedRows(300, 5), /*count=*/true);
      SCOPED_TRACE(gemm.text.name);
      uint64_t read = 0, written = 0, stored = 0;
      for (const Traffic &each : gemm.traffic) {
        read += each.distinctLoaded;
        written += each.distinctStored;
        stored += each.stored;
      }
      EXPECT_EQ(read, gemm.text.bytes.read);
      EXPECT_EQ(written, gemm.text.bytes.written);
      EXPECT_EQ(stored, written) << "each result is stored once";
    }
}
