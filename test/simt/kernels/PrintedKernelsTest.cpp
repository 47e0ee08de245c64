// Every form that the printers emit, by the kernels of a Llama in odd shapes, against the CPU's
// code of the same region.
#include "test/compiler/targets/cpu/KernelTexts.h"
#include "test/passes/fusion/AdamW8bitKernel.h"
#include "test/passes/fusion/NormKernels.h"
#include "test/simt/kernels/Collection.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::simt;

namespace {

// One row, one column, less and more than a warp, a block, and what threads keep in registers;
// whole vectors and ragged ones.
const Extents kShapes[] = {{1, 1},   {5, 1},    {1, 7},    {3, 33},    {2, 64},   {7, 131},
                           {40, 8},  {1, 2048}, {3, 1000}, {2, 12296}, {129, 40}, {2, 40007}};

Values valuesOf(Extents e, const std::string &type) {
  return {{"R", std::to_string(e.rows)},
          {"C", std::to_string(e.columns)},
          {"S", std::to_string(e.rows)},
          {"T", type}};
}

void expectRight(const char *text, const char *name, const std::string &type = "f32",
                 int64_t mostColumns = 1 << 30) {
  Collection kernels;
  for (Extents e : kShapes)
    if (e.columns <= mostColumns)
      kernels.add(text, valuesOf(e, type),
                  std::string(name) + "_" + std::to_string(e.rows) + "x" +
                      std::to_string(e.columns));
  kernels.expectRight();
}

// Of `e.rows` blocks of rows.
Values blockSumValues(Extents e, int64_t rowsOfABlock) {
  const std::string blocks = std::to_string(e.rows), columns = std::to_string(e.columns),
                    rows = std::to_string(e.rows * rowsOfABlock), shape = "x" + columns + "xf32>";
  return {{"R", rows},
          {"C", columns},
          {"P", std::to_string(rowsOfABlock)},
          {"B", blocks},
          {"after", ""},
          {"yield", "%sums : tensor<" + rows + shape + ", tensor<" + blocks + shape}};
}

struct Text {
  const char *name, *text;
  Extents most = {300, 2048};
};

void PrintTo(const Text &text, std::ostream *out) { *out << text.name; }

class DrawnShapes : public testing::TestWithParam<Text> {};

} // namespace

using namespace lmc::codegen::test;

TEST(PrintedKernels, residualRmsNorm) { expectRight(kResidualRmsNorm, "norm"); }
TEST(PrintedKernels, rmsNormBf16) { expectRight(kRmsNormBf16, "norm_bf16"); }
TEST(PrintedKernels, rmsNormGrad) { expectRight(kRmsNormGrad, "norm_grad"); }
TEST(PrintedKernels, crossEntropy) { expectRight(kCrossEntropy, "cross_entropy"); }
TEST(PrintedKernels, swiglu) { expectRight(kSwiglu, "swiglu", "f32", 2048); }
TEST(PrintedKernels, swigluGrad) { expectRight(kSwigluGrad, "swiglu_grad", "f32", 2048); }
TEST(PrintedKernels, rope) { expectRight(kRope, "rope", "f32", 131); }
TEST(PrintedKernels, gather) { expectRight(kGather, "gather", "f32", 2048); }
TEST(PrintedKernels, columnSum) { expectRight(kColumnSum, "column_sum", "f32", 2048); }
TEST(PrintedKernels, adamw) { expectRight(kAdamW, "adamw", "f32", 2048); }

TEST(PrintedKernels, sumsOfBlocksOfRows) {
  Collection kernels;
  for (Extents e : kShapes)
    for (int64_t rowsOfABlock : {1, 16}) {
      if (e.columns > 2048 || e.rows > 7)
        continue;
      kernels.add(kBlockSums, blockSumValues(e, rowsOfABlock),
                  "block_sums_" + std::to_string(e.rows) + "x" + std::to_string(rowsOfABlock) +
                      "x" + std::to_string(e.columns));
    }
  kernels.expectRight();
}

TEST_P(DrawnShapes, agreeWithTheCpu) {
  expectRightInDrawnShapes(GetParam().text, 12, GetParam().most, [](Extents e, Draw &draw) {
    return valuesOf(e, draw.pick({"f32", "f32", "f64"}));
  });
}

// Long rows are those that a reduction goes along; only the column sums have many rows.
INSTANTIATE_TEST_SUITE_P(PrintedKernels, DrawnShapes,
                         testing::Values(Text{"residualRmsNorm", kResidualRmsNorm, {300, 40000}},
                                         Text{"rmsNormBf16", kRmsNormBf16, {300, 40000}},
                                         Text{"rmsNormGrad", kRmsNormGrad, {300, 40000}},
                                         Text{"crossEntropy", kCrossEntropy, {300, 120000}},
                                         Text{"swiglu", kSwiglu}, Text{"swigluGrad", kSwigluGrad},
                                         Text{"rope", kRope, {60, 130}}, Text{"gather", kGather},
                                         Text{"columnSum", kColumnSum, {3000, 2048}},
                                         Text{"adamw", kAdamW}),
                         [](const auto &info) { return std::string(info.param.name); });

TEST(PrintedKernels, sumsOfBlocksOfRowsInDrawnShapes) {
  expectRightInDrawnShapes(kBlockSums, 12, {40, 9000}, [](Extents e, Draw &draw) {
    return blockSumValues(e, draw.between(1, 17));
  });
}

TEST(PrintedKernels, adamw8bitInDrawnShapes) {
  expectRightInDrawnShapes(12, {70, 1}, [](Extents e, Draw &) { return adamW8bitKernel(e.rows); });
}

TEST(PrintedKernels, gradientNormInDrawnShapes) {
  expectRightInDrawnShapes(12, {300, 40000}, [](Extents e, Draw &) {
    return normKernels(e.rows, e.columns).sumSquares;
  });
  expectRightInDrawnShapes(12, {1, 40000},
                           [](Extents e, Draw &) { return normKernels(e.columns, 1).norm; });
}

// The exceptions to "each input once": what registers and shared memory cannot keep of a row is read
// again. The cross entropy finds maximum and sum in one pass, and writes the gradient in a second.
TEST(PrintedKernels, aRowTooLongToKeepIsReadTwice) {
  Collection kernels;
  // Kept in registers; kept in shared memory; of 25,000 vectors of 16 bytes, 14 of each of 1024 threads
  // fit into shared memory.
  const std::pair<int, uint64_t> cases[] = {{4096, 0}, {50000, 0}, {100000, 100000 - 14 * 1024 * 4}};
  for (auto [columns, again] : cases)
    kernels.add(kCrossEntropy, {{"R", "2"}, {"C", std::to_string(columns)}},
                "cross_entropy_2x" + std::to_string(columns));
  std::vector<CheckedKernel> run = kernels.expectRight();
  for (auto [i, each] : llvm::enumerate(cases)) {
    const CheckedKernel &kernel = run[i];
    const Traffic &logits = kernel.traffic[0], &gradient = kernel.traffic[3];
    // And the target's logit, by each warp.
    const uint64_t targets = 2 * sizeof(float) * kernel.cuda.threads / 32;
    const uint64_t once = kernel.arguments[0].bytes;
    EXPECT_EQ(kernel.cuda.again.read, 2 * sizeof(float) * each.second) << each.first;
    EXPECT_GE(logits.loaded, once + kernel.cuda.again.read);
    EXPECT_LE(logits.loaded, once + kernel.cuda.again.read + targets);
    EXPECT_EQ(logits.distinctLoaded, kernel.arguments[0].bytes);
    EXPECT_EQ(gradient.stored, kernel.arguments[3].bytes);
    EXPECT_EQ(gradient.storeSectors * 32, gradient.stored);
  }
}
