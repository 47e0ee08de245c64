// When a kernel may write a result over an input.
#include "passes/buffers/OverwriteRule.h"
#include "compiler/driver/Registration.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace lmc;

namespace {

class OverwriteRuleTest : public testing::Test {
protected:
  OverwriteRuleTest() : context(MLIRContext::Threading::DISABLED) {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  kern::KernelOp parse(const std::string &kernel) {
    std::string text = R"(
#all = affine_map<(i, j) -> (i, j)>
#flip = affine_map<(i, j) -> (7 - i, j)>
#row = affine_map<(i, j) -> (i)>
#column = affine_map<(i, j) -> (j)>
)";
    module = parseSourceString<ModuleOp>(text + kernel, &context);
    return *module->getOps<kern::KernelOp>().begin();
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

// y = x / sum of the row's x; a second result is another pass over x when `later` is set.
std::string normalise(bool later) {
  std::string text = R"(
kern.kernel @normalise row_reduction {
^bb0(%x: tensor<8x8xf32>):
  %zero = arith.constant 0.0 : f32
  %f = tensor.empty() : tensor<8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%f : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#all, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<8x8xf32>) outs(%init : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<8xf32>
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<8x8xf32>, tensor<8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32):
    %q = arith.divf %a, %b : f32
    linalg.yield %q : f32
  } -> tensor<8x8xf32>
  %n = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %m = arith.negf %a : f32
    linalg.yield %m : f32
  } -> tensor<8x8xf32>
)";
  return text + (later ? "kern.yield %y, %n : tensor<8x8xf32>, tensor<8x8xf32>\n}\n"
                       : "kern.yield %y : tensor<8x8xf32>\n}\n");
}

std::string elementwise(const std::string &map) {
  return R"(
kern.kernel @read elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [)" +
         map + R"(, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
)";
}

// y[i, j] = x[i, label[i]] or x[label[i], j].
std::string gather(bool row) {
  return std::string(R"(
kern.kernel @pick gather {
^bb0(%label: tensor<8xi32>, %x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#row, #all], iterator_types = ["parallel", "parallel"]}
      ins(%label : tensor<8xi32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%l: i32, %o: f32):
    %at = arith.index_cast %l : i32 to index
    %i = linalg.index )") +
         (row ? "1" : "0") + R"( : index
    %v = tensor.extract %x[)" +
         (row ? "%at, %i" : "%i, %at") + R"(] : tensor<8x8xf32>
    linalg.yield %v : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
)";
}

// The same under hero row_reduction.
std::string byRows(std::string text) {
  for (const char *hero : {"elementwise", "gather"})
    if (size_t at = text.find(hero); at != std::string::npos)
      text.replace(at, std::string(hero).size(), "row_reduction");
  return text;
}

} // namespace

TEST_F(OverwriteRuleTest, AllowsTheSameElement) {
  EXPECT_TRUE(readsBeforeWriting(parse(elementwise("#all")), 0, 0));
}

TEST_F(OverwriteRuleTest, ForbidsElementsOfOtherItems) {
  EXPECT_FALSE(readsBeforeWriting(parse(elementwise("#flip")), 0, 0));
  EXPECT_FALSE(readsBeforeWriting(parse(elementwise("affine_map<(i, j) -> (j, i)>")), 0, 0));
  EXPECT_FALSE(readsBeforeWriting(parse(elementwise("affine_map<(i, j) -> (i, 7 - j)>")), 0, 0));
}

// A row reduction reads what is the same along the row before it writes the row.
TEST_F(OverwriteRuleTest, AllowsOneElementOfTheRowOfAReduction) {
  EXPECT_TRUE(readsBeforeWriting(parse(byRows(elementwise("affine_map<(i, j) -> (i, 3)>"))), 0, 0));
  EXPECT_FALSE(
      readsBeforeWriting(parse(byRows(elementwise("affine_map<(i, j) -> (3, j)>"))), 0, 0));
  EXPECT_TRUE(readsBeforeWriting(parse(byRows(gather(/*row=*/false))), 1, 0));
  EXPECT_FALSE(readsBeforeWriting(parse(byRows(gather(/*row=*/true))), 1, 0));
}

// Others may have several threads on a row, which do not wait for each other.
TEST_F(OverwriteRuleTest, ForbidsOneElementOfARowOfItems) {
  EXPECT_FALSE(readsBeforeWriting(parse(elementwise("affine_map<(i, j) -> (i, 3)>")), 0, 0));
  EXPECT_FALSE(readsBeforeWriting(parse(gather(/*row=*/false)), 1, 0));
}

// y is written in the second pass, when the sum has been read; -x in the first, and y reads x
// after it.
TEST_F(OverwriteRuleTest, ForbidsWhatALaterPassReads) {
  EXPECT_TRUE(readsBeforeWriting(parse(normalise(/*later=*/false)), 0, 0));
  kern::KernelOp both = parse(normalise(/*later=*/true));
  EXPECT_TRUE(readsBeforeWriting(both, 0, 0));
  EXPECT_FALSE(readsBeforeWriting(both, 0, 1));
}

// A norm of heads adds up what each row and head contributes to the gradient of its weight, block
// by block of rows, in the pass that writes the row's result.
TEST_F(OverwriteRuleTest, AllowsTheSameElementWhereBlocksOfRowsAreAddedUp) {
  auto sums = [&](const std::string &head) {
    return parse(R"(
#every = affine_map<(i, h, j) -> (i, h, j)>
kern.kernel @sums row_reduction {
^bb0(%x: tensor<8x2x4xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x2x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(i, h, j) -> (i, )" +
                 head + R"(, j)>, #every], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<8x2x4xf32>) outs(%e : tensor<8x2x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8x2x4xf32>
  %rows = tensor.empty() : tensor<4xf32>
  %f = tensor.empty() : tensor<2x4xf32>
  %init = linalg.fill ins(%zero : f32) outs(%f : tensor<2x4xf32>) -> tensor<2x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(b, r, h, j) -> (b * 4 + r, h, j)>,
                                        affine_map<(b, r, h, j) -> (r)>,
                                        affine_map<(b, r, h, j) -> (b, j)>],
                       iterator_types = ["parallel", "reduction", "reduction", "parallel"]}
      ins(%x, %rows : tensor<8x2x4xf32>, tensor<4xf32>) outs(%init : tensor<2x4xf32>) {
  ^bb0(%a: f32, %r: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<2x4xf32>
  kern.yield %y, %s : tensor<8x2x4xf32>, tensor<2x4xf32>
}
)");
  };
  EXPECT_TRUE(readsBeforeWriting(sums("h"), 0, 0));
  EXPECT_FALSE(readsBeforeWriting(sums("1 - h"), 0, 0));
}

// Each column is added up, with a start of its own.
TEST_F(OverwriteRuleTest, AllowsTheStartOfAColumnsSum) {
  kern::KernelOp sum = parse(R"(
kern.kernel @sum column_reduction {
^bb0(%x: tensor<8x8xf32>, %start: tensor<8xf32>):
  %s = linalg.generic {indexing_maps = [#all, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%start : tensor<8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %t = arith.addf %o, %a : f32
    linalg.yield %t : f32
  } -> tensor<8xf32>
  kern.yield %s : tensor<8xf32>
}
)");
  EXPECT_TRUE(readsBeforeWriting(sum, 1, 0));
  EXPECT_FALSE(readsBeforeWriting(sum, 0, 0)); // another shape
}

// A factor for every row is read by all columns of it.
TEST_F(OverwriteRuleTest, ForbidsWhatAllColumnsRead) {
  kern::KernelOp sum = parse(R"(
kern.kernel @sum column_reduction {
^bb0(%x: tensor<8x8xf32>, %factor: tensor<8xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8xf32>
  %init = linalg.fill ins(%zero : f32) outs(%e : tensor<8xf32>) -> tensor<8xf32>
  %s = linalg.generic {indexing_maps = [#all, #row, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x, %factor : tensor<8x8xf32>, tensor<8xf32>) outs(%init : tensor<8xf32>) {
  ^bb0(%a: f32, %f: f32, %o: f32):
    %p = arith.mulf %a, %f : f32
    %t = arith.addf %o, %p : f32
    linalg.yield %t : f32
  } -> tensor<8xf32>
  kern.yield %s : tensor<8xf32>
}
)");
  EXPECT_FALSE(readsBeforeWriting(sum, 1, 0));
}
