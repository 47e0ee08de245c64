// Every form that the printers emit, by the kernels of a Llama in odd shapes, against the CPU's
// code of the same region.
#include "test/passes/codegen/KernelRunner.h"
#include "test/passes/codegen/KernelTexts.h"
#include "test/simt/kernels/KernelCheck.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::simt;
using codegen::test::substitute;

namespace {

struct Extents {
  int64_t rows, columns;
};

// One row, one column, less and more than a warp, a block, and what threads keep in registers;
// whole vectors and ragged ones.
const Extents kShapes[] = {{1, 1},   {5, 1},    {1, 7},    {3, 33},    {2, 64},   {7, 131},
                           {40, 8},  {1, 2048}, {3, 1000}, {2, 12296}, {129, 40}, {2, 40007}};

// Kernels of many texts, in one module that is compiled at once.
class Collection {
public:
  void add(const std::string &text, const std::string &name) {
    std::string error;
    auto parsed = codegen::test::parse(text, error);
    ASSERT_TRUE(parsed) << error;
    if (!module)
      module = mlir::ModuleOp::create(mlir::UnknownLoc::get(parsed->getContext()));
    auto kernel = *parsed->getOps<kern::KernelOp>().begin();
    kernel->remove();
    kernel.setSymName(name);
    module->push_back(kernel);
  }
  std::vector<CheckedKernel> expectRight() {
    std::vector<CheckedKernel> kernels = checkKernels(*module);
    for (const CheckedKernel &kernel : kernels)
      EXPECT_EQ(kernel.failure, "") << kernel.cuda.source;
    return kernels;
  }

private:
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

void expectRight(const char *text, const char *name, const std::string &type = "f32",
                 int64_t mostColumns = 1 << 30) {
  Collection kernels;
  for (Extents e : kShapes)
    if (e.columns <= mostColumns)
      kernels.add(substitute(text, {{"R", std::to_string(e.rows)},
                                    {"C", std::to_string(e.columns)},
                                    {"S", std::to_string(e.rows)},
                                    {"T", type}}),
                  std::string(name) + "_" + std::to_string(e.rows) + "x" +
                      std::to_string(e.columns));
  kernels.expectRight();
}

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
      const std::string text = substitute(
          kBlockSums, {{"after", ""}, {"yield", "%sums : tensor<$Rx$Cxf32>, tensor<$Bx$Cxf32>"}});
      kernels.add(substitute(text, {{"R", std::to_string(e.rows * rowsOfABlock)},
                                    {"C", std::to_string(e.columns)},
                                    {"P", std::to_string(rowsOfABlock)},
                                    {"B", std::to_string(e.rows)}}),
                  "block_sums_" + std::to_string(e.rows) + "x" + std::to_string(rowsOfABlock) +
                      "x" + std::to_string(e.columns));
    }
  kernels.expectRight();
}

// The exceptions to "each input once": a row that no block can hold is read again. The cross
// entropy finds maximum and sum in one pass, and writes the gradient in a second.
TEST(PrintedKernels, aRowTooLongToKeepIsReadTwice) {
  Collection kernels;
  for (const char *columns : {"4096", "50000"})
    kernels.add(substitute(kCrossEntropy, {{"R", "2"}, {"C", columns}, {"T", "f32"}}),
                std::string("cross_entropy_2x") + columns);
  std::vector<CheckedKernel> run = kernels.expectRight();
  for (uint64_t times : {1, 2}) {
    const CheckedKernel &kernel = run[times - 1];
    const Traffic &logits = kernel.traffic[0], &gradient = kernel.traffic[3];
    // And the target's logit, by each warp.
    const uint64_t targets = 2 * sizeof(float) * kernel.cuda.threads / 32;
    const uint64_t once = kernel.arguments[0].bytes;
    EXPECT_EQ(kernel.cuda.again.read, (times - 1) * once);
    EXPECT_GE(logits.loaded, once + kernel.cuda.again.read);
    EXPECT_LE(logits.loaded, once + kernel.cuda.again.read + targets);
    EXPECT_EQ(logits.distinctLoaded, kernel.arguments[0].bytes);
    EXPECT_EQ(gradient.stored, kernel.arguments[3].bytes);
    EXPECT_EQ(gradient.storeSectors * 32, gradient.stored);
  }
}
