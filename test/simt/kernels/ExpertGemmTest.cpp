// The kernels of products of rows with the matrix of their expert: in many orders of threads, their
// grids and what they move. CommandsTest.cpp compares them with sums in f64.
#include "compiler/targets/cuda/templates/ExpertGemmTemplates.h"
#include "test/runtime/device/cpu/Values.h"
#include "test/simt/kernels/Draw.h"
#include "test/simt/kernels/KernelArgument.h"
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

  // Runs the kernel in two orders, whose results must be the same bits, and all must be there.
  void check(const std::vector<int64_t> &counts, bool count = false, uint64_t order = 1) {
    ASSERT_EQ(kernel.size(), 1u);
    std::vector<int32_t> offsets = expertOffsets(counts);
    ASSERT_EQ(offsets.back(), shape.rows);
    using cpu::test::Values;
    const Storage type = expertStorage(shape.type), sums = expertStorage(shape.sumType());
    const int64_t matrices = shape.experts * shape.inner * shape.columns;
    auto aligned = [](const Values &values) {
      return AlignedBytes(values.bytes.data(), values.bytes.size());
    };
    auto a =
        aligned(Values::random(type, shape.rows * (isGrad ? shape.columns : shape.inner), random));
    auto b = aligned(Values::random(type, isGrad ? shape.rows * shape.inner : matrices, random));
    // What is not added to holds NaN before.
    Values result = !isGrad            ? Values(type, shape.rows * shape.columns)
                    : shape.accumulate ? Values::random(sums, matrices, random)
                                       : Values(sums, matrices);
    auto d = aligned(result);
    RunResult run = runTwice(kernel.front(),
                             {{a.lines.data(), a.size, Access::Read},
                              {b.lines.data(), b.size, Access::Read},
                              {offsets.data(), offsets.size() * 4, Access::Read},
                              {d.lines.data(), d.size, Access::ReadWrite}},
                             order, count);
    ASSERT_EQ(run.failure, "");
    d.to(result.data());
    for (int64_t i = 0; i < result.size(); ++i)
      ASSERT_EQ(result[i], result[i]) << "element " << i << " is not written";
    traffic = run.traffic;
  }

  const ExpertGemmShape shape;
  const bool isGrad;
  std::mt19937_64 random;
  const CudaKernel text;
  std::vector<Traffic> traffic;

private:
  std::vector<simt::Kernel> kernel;
};

} // namespace

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

// The grid has a block for each tile of any offsets: each row is computed, so the worst are those
// with one row more than whole tiles.
TEST(ExpertGemmKernels, TheGridIsLargeEnough) {
  ExpertGemm tiled({128 + 4 * 129, 8, 8, 8, DataType::BF16}, false);
  tiled.check({129, 129, 129, 129, 125, 1, 1, 1});
  tiled.check({1, 1, 1, 1, 1, 1, 1, 637});
  ExpertGemm plain({4 * 33 + 4, 8, 3, 3, DataType::F32}, false);
  plain.check({33, 33, 33, 33, 1, 1, 1, 1});
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
