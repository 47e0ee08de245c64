// What no hero emits, each with its reason, and what a buffer may not be shared for.
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"

#include "gtest/gtest.h"

using namespace lmc;
using namespace lmc::codegen;
using namespace lmc::codegen::test;

namespace {

const char *kMaps = R"(
#rc = affine_map<(r, c) -> (r, c)>
#cr = affine_map<(r, c) -> (c, r)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
#s = affine_map<(r, c) -> ()>
#o = affine_map<(r) -> (r)>
)";

// A kernel of one generic over [4, 8] from %x [4, 8] and %ids [4].
std::string oneGeneric(const char *hero, const char *inputMap, const char *inputType,
                       const char *body, const char *type = "f32") {
  return substitute(
      std::string(kMaps) + R"(
kern.kernel @kernel $hero {
^bb0(%x: tensor<$in>, %ids: tensor<4xi32>):
  %e = tensor.empty() : tensor<4x8x$type>
  %y = linalg.generic {indexing_maps = [$map, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %ids : tensor<$in>, tensor<4xi32>) outs(%e : tensor<4x8x$type>) {
  ^bb0(%a: $type, %id: i32, %o: $type):
    $body
    linalg.yield %z : $type
  } -> tensor<4x8x$type>
  kern.yield %y : tensor<4x8x$type>
})",
      {{"hero", hero}, {"in", inputType}, {"map", inputMap}, {"body", body}, {"type", type}});
}

// A row reduction of %x [4, 8] through `body`, with `after` before the yield.
std::string oneReduction(const char *hero, const char *iterators, const char *map, const char *size,
                         const char *body, const char *after, const char *yield) {
  return substitute(std::string(kMaps) + R"(
kern.kernel @kernel $hero {
^bb0(%x: tensor<4x8xf32>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<$sizexf32>
  %ef = tensor.empty() : tensor<4x8xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<$sizexf32>) -> tensor<$sizexf32>
  %s = linalg.generic {indexing_maps = [#rc, $map], iterator_types = [$iterators]}
      ins(%x : tensor<4x8xf32>) outs(%f : tensor<$sizexf32>) {
  ^bb0(%a: f32, %acc: f32):
    $body
    linalg.yield %z : f32
  } -> tensor<$sizexf32>
  $after
  kern.yield $yield
})",
                    {{"hero", hero},
                     {"iterators", iterators},
                     {"map", map},
                     {"size", size},
                     {"body", body},
                     {"after", after},
                     {"yield", yield}});
}

// Sums of blocks of two of four rows, with `after` before the yield.
std::string blockSums(const char *after, const char *yield) {
  return substitute(kBlockSums, {{"R", "4"},
                                 {"C", "8"},
                                 {"P", "2"},
                                 {"B", "2"},
                                 {"after", after},
                                 {"yield", yield}});
}

std::string refusal(const std::string &text) {
  std::string error;
  auto module = parse(text, error);
  if (!module)
    return "does not parse: " + error;
  auto kernel = *module->getOps<kern::KernelOp>().begin();
  auto shape = analyze(kernel.getHero(), kernel.getBody().front());
  return shape ? "is accepted" : llvm::toString(shape.takeError());
}

const char *kCopy = "%z = arith.addf %a, %a : f32";
const char *kRowSum = "\"parallel\", \"reduction\"",
           *kColumnSumText = "\"reduction\", \"parallel\"";

struct Case {
  const char *name;
  std::string text;
  std::string reason;
};

std::vector<Case> cases() {
  const char *add = "%z = arith.addf %acc, %a : f32";
  return {
      {"transposedRead", oneGeneric("elementwise", "#cr", "8x4xf32", kCopy),
       "input 0 is not contiguous along the innermost dimension: it may only be the last index, as "
       "it is"},
      {"stridedRead",
       oneGeneric("elementwise", "affine_map<(r, c) -> (r, c * 2)>", "4x16xf32", kCopy),
       "input 0 is not contiguous along the innermost dimension: it may only be the last index, as "
       "it is"},
      {"extractOutsideGather",
       oneGeneric("elementwise", "#rc", "4x8xf32",
                  "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n"
                  "%z = tensor.extract %x[%i, %j] : tensor<4x8xf32>"),
       "tensor.extract needs hero gather"},
      {"gatherOfElements",
       oneGeneric("gather", "#rc", "4x8xf32",
                  "%i = linalg.index 0 : index\n%q = arith.fptosi %a : f32 to i32\n"
                  "%j = arith.index_cast %q : i32 to index\n"
                  "%z = tensor.extract %x[%i, %j] : tensor<4x8xf32>"),
       "tensor.extract may vary along the innermost dimension only by its plain loop index, as the "
       "last index and within the tensor"},
      {"gatherOfColumns",
       oneGeneric("gather", "affine_map<(r, c) -> (r + 4, c)>", "8x8xf32",
                  "%i = linalg.index 1 : index\n%j = linalg.index 0 : index\n"
                  "%z = tensor.extract %x[%i, %j] : tensor<8x8xf32>"),
       "tensor.extract may use the innermost loop index only as the last index"},
      {"bf16Arithmetic",
       oneGeneric("elementwise", "#rc", "4x8xbf16", "%z = arith.addf %a, %a : bf16", "bf16"),
       "'arith.addf' computes in a float of 8 or 16 bits; extend to f32 first"},
      {"unknownFunction", oneGeneric("elementwise", "#rc", "4x8xf32", "%z = math.atan %a : f32"),
       "no code for 'math.atan' in a kernel"},
      {"storageType",
       oneGeneric("elementwise", "#rc", "4x8xf128", "%z = arith.negf %a : f128", "f128"),
       "an input is not a static tensor of f32, bf16, f16, f64, an 8-bit float, i8, i32 or "
       "i64"},
      {"columnHeroWithoutReduction", oneGeneric("column_reduction", "#rc", "4x8xf32", kCopy),
       "hero column_reduction has no reduction over the rows"},
      {"reductionUnderElementwise",
       oneReduction("elementwise", kRowSum, "#r", "4", add, "", "%s : tensor<4xf32>"),
       "a reduction needs hero row_reduction or column_reduction"},
      {"rowsUnderColumnHero",
       oneReduction("column_reduction", kRowSum, "#r", "4", add, "", "%s : tensor<4xf32>"),
       "result 0 of shape [4] does not fit the domain [4, 8] of hero column_reduction"},
      {"columnsUnderRowHero",
       oneReduction("row_reduction", kColumnSumText, "#c", "8", add, "", "%s : tensor<8xf32>"),
       "result 0 of shape [8] does not fit the domain [4, 8] of hero row_reduction"},
      {"wholeResultOfColumnHero",
       oneReduction("column_reduction", kColumnSumText, "#c", "8", add, "", "%x : tensor<4x8xf32>"),
       "result 0 of shape [4, 8] does not fit the domain [4, 8] of hero column_reduction"},
      {"combiner",
       oneReduction("row_reduction", kRowSum, "#r", "4", "%z = arith.subf %acc, %a : f32", "",
                    "%s : tensor<4xf32>"),
       "a reduction must combine its accumulator once, by addf, mulf, a float maximum or minimum, "
       "addi, muli, maxsi or minsi"},
      {"combinerOnce",
       oneReduction("row_reduction", kRowSum, "#r", "4",
                    "%t = arith.mulf %acc, %a : f32\n%z = arith.addf %acc, %t : f32", "",
                    "%s : tensor<4xf32>"),
       "a reduction must combine its accumulator once, by addf, mulf, a float maximum or minimum, "
       "addi, muli, maxsi or minsi"},
      {"emptyRead",
       oneReduction("row_reduction", kRowSum, "#r", "4", add, "",
                    "%s, %ef : tensor<4xf32>, tensor<4x8xf32>"),
       "a tensor.empty is read before it is written"},
      {"permutedResult",
       oneReduction("row_reduction", kRowSum, "#r", "4", add, R"(
  %p = linalg.generic {indexing_maps = [#s, #cr], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%ef : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>)",
                    "%s, %p : tensor<4xf32>, tensor<4x8xf32>"),
       "a linalg.generic writes its result through a map that is not an identity"},
      {"reductionOfAnotherRow",
       oneReduction("row_reduction", kRowSum, "#r", "4", add, R"(
  %p = linalg.generic {indexing_maps = [affine_map<(r, c) -> (3 - r)>, #rc],
                       iterator_types = ["parallel", "parallel"]}
      ins(%s : tensor<4xf32>) outs(%ef : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>)",
                    "%p : tensor<4x8xf32>"),
       "the result of a reduction is read for another item"},
      {"columnReductionOfAnother",
       oneReduction("column_reduction", kColumnSumText, "#c", "8", add, R"(
  %t = linalg.generic {indexing_maps = [#rc, #c, #c], iterator_types = ["reduction", "parallel"]}
      ins(%x, %s : tensor<4x8xf32>, tensor<8xf32>) outs(%f : tensor<8xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %d = arith.subf %a, %b : f32
    %z = arith.addf %acc, %d : f32
    linalg.yield %z : f32
  } -> tensor<8xf32>)",
                    "%t : tensor<8xf32>"),
       "a column reduction may not depend on another"},
      {"blockSumRead",
       blockSums(R"(
  %z = linalg.generic {indexing_maps = [affine_map<(r, c) -> (r floordiv 2, c)>, #rc],
                       iterator_types = ["parallel", "parallel"]}
      ins(%sums : tensor<2x8xf32>) outs(%e : tensor<4x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<4x8xf32>)",
                 "%z : tensor<4x8xf32>, tensor<4x8xf32>"),
       "the sums of blocks of rows may only be a result"},
      {"blocksOfAnotherSize",
       blockSums(R"(
  %all = tensor.empty() : tensor<4xf32>
  %e1 = tensor.empty() : tensor<1x8xf32>
  %f1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x8xf32>) -> tensor<1x8xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(b, i, c) -> (b * 4 + i, c)>, #i, #bc],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x, %all : tensor<4x8xf32>, tensor<4xf32>) outs(%f1 : tensor<1x8xf32>) {
  ^bb0(%a: f32, %unused: f32, %acc: f32):
    %s = arith.addf %acc, %a : f32
    linalg.yield %s : f32
  } -> tensor<1x8xf32>)",
                 "%sums, %z : tensor<4x8xf32>, tensor<2x8xf32>, tensor<1x8xf32>"),
       "a sum over blocks [1, 4, 8] does not match the domain [4, 8] in blocks of 2 rows"},
      {"blockSumOntoOther",
       blockSums(R"(
  %z = linalg.generic {indexing_maps = [#brc, #i, #bc],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x, %rows : tensor<4x8xf32>, tensor<2xf32>) outs(%sums : tensor<2x8xf32>) {
  ^bb0(%a: f32, %unused: f32, %acc: f32):
    %s = arith.addf %acc, %a : f32
    linalg.yield %s : f32
  } -> tensor<2x8xf32>)",
                 "%z : tensor<4x8xf32>, tensor<2x8xf32>"),
       "a sum of blocks of rows starts from something else than a linalg.fill"},
  };
}

// Sums of %x [2, 3, 8] over the last two dimensions, and what `map` reads of %w; with `more` before
// the yield.
static std::string sumOfTwoDimensions(const char *map, const char *weight, const char *more,
                                      const char *yield) {
  return substitute(R"(
#all = affine_map<(a, b, c) -> (a, b, c)>
#row = affine_map<(a, b, c) -> (a)>
kern.kernel @kernel row_reduction {
^bb0(%x: tensor<2x3x8xf32>, %w: tensor<$weight>):
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2xf32>) -> tensor<2xf32>
  %s = linalg.generic {indexing_maps = [#all, $map, #row],
                       iterator_types = ["parallel", "reduction", "reduction"]}
      ins(%x, %w : tensor<2x3x8xf32>, tensor<$weight>) outs(%f : tensor<2xf32>) {
  ^bb0(%a: f32, %b: f32, %acc: f32):
    %p = arith.mulf %a, %b : f32
    %z = arith.addf %acc, %p : f32
    linalg.yield %z : f32
  } -> tensor<2xf32>
  $more
  kern.yield $yield
})",
                    {{"map", map}, {"weight", weight}, {"more", more}, {"yield", yield}});
}

TEST(Hero, aRowMayHaveSeveralDimensions) {
  std::string error;
  auto module = parse(
      sumOfTwoDimensions("affine_map<(a, b, c) -> (b, c)>", "3x8xf32", "", "%s : tensor<2xf32>"),
      error);
  ASSERT_TRUE(module) << error;
  auto kernel = *module->getOps<kern::KernelOp>().begin();
  auto shape = analyze(kernel.getHero(), kernel.getBody().front());
  ASSERT_TRUE(bool(shape)) << llvm::toString(shape.takeError());
  EXPECT_EQ(shape->items, 2);
  EXPECT_EQ(shape->inner, 24);
  EXPECT_EQ(shape->reducedDims, 2u);
  EXPECT_EQ(shape->readBytes, 4u * (48 + 24));
  EXPECT_EQ(shape->writtenBytes, 4u * 2);

  EXPECT_EQ(refusal(sumOfTwoDimensions("affine_map<(a, b, c) -> (b)>", "3xf32", "",
                                       "%s : tensor<2xf32>")),
            "input 1 varies along a row, but not along the innermost dimension");
  EXPECT_EQ(refusal(sumOfTwoDimensions("affine_map<(a, b, c) -> (b, c)>", "3x8xf32", R"(
  %e2 = tensor.empty() : tensor<2x3xf32>
  %f2 = linalg.fill ins(%zero : f32) outs(%e2 : tensor<2x3xf32>) -> tensor<2x3xf32>
  %t = linalg.generic {indexing_maps = [#all, affine_map<(a, b, c) -> (a, b)>],
                       iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x : tensor<2x3x8xf32>) outs(%f2 : tensor<2x3xf32>) {
  ^bb0(%a: f32, %acc: f32):
    %z = arith.addf %acc, %a : f32
    linalg.yield %z : f32
  } -> tensor<2x3xf32>)",
                                       "%s, %t : tensor<2xf32>, tensor<2x3xf32>")),
            "result 1 of shape [2, 3] does not fit the domain [2, 3, 8] of hero row_reduction");
}

TEST(Hero, refusesWithTheReason) {
  for (const Case &c : cases())
    EXPECT_EQ(refusal(c.text), c.reason) << c.name;
}

TEST(Hero, countsEveryInputOnce) {
  Kernel kernel(substitute(kResidualRmsNorm, {{"R", "64"}, {"C", "768"}}), {"x86-64"});
  ASSERT_EQ(kernel.error(), "");
  // x, res, h and y once each, rstd, and a 64th of the weights.
  EXPECT_EQ(kernel.shape().bytesPerItem, 4u * 768 * 4 + 4 + 768 * 4 / 64);
  // h: 1, sum: 2, y: 2 per element; rstd: a division, a sum and a root per row.
  EXPECT_EQ(kernel.shape().flopsPerItem, 5u * 768 + 3);
  EXPECT_EQ(kernel.shape().chunk, (48 << 10) / int64_t(kernel.shape().bytesPerItem));
}

TEST(Hero, gatherCountsTheRowsItReads) {
  Kernel kernel(substitute(kGather, {{"R", "4"}, {"C", "64"}}), {"x86-64"});
  ASSERT_EQ(kernel.error(), "");
  EXPECT_EQ(kernel.shape().bytesPerItem, 64u * 4 * 2 + 4);
}

TEST(Hero, sharesNoBufferOfAnotherLayout) {
  Kernel kernel(substitute(kRmsNormBf16, {{"R", "4"}, {"C", "4"}}), {"x86-64"});
  ASSERT_EQ(kernel.error(), "");
  EXPECT_TRUE(kernel.mayShare(0, 0));
  EXPECT_FALSE(kernel.mayShare(1, 1)) << "f32 over bf16 of the same shape";
  EXPECT_FALSE(kernel.mayShare(0, 1));
  EXPECT_FALSE(kernel.mayShare(0, 2)) << "there is no such input";
}

// y[r, c] = x[r, c] + x[r, ids[r]].
constexpr char kAddOfRow[] = R"(
    %row = linalg.index 0 : index
    %i = arith.index_cast %id : i32 to index
    %q = tensor.extract %x[%row, %i] : tensor<4x8xf32>
    %z = arith.addf %a, %q : f32)";

TEST(Hero, anElementThatARowSharesIsReadBeforeTheRowIsWrittenInARowReductionOnly) {
  Kernel row(oneGeneric("row_reduction", "#rc", "4x8xf32", kAddOfRow), {"x86-64"});
  ASSERT_EQ(row.error(), "");
  EXPECT_TRUE(row.mayShare(0, 0));
  Kernel gather(oneGeneric("gather", "#rc", "4x8xf32", kAddOfRow), {"x86-64"});
  ASSERT_EQ(gather.error(), "");
  EXPECT_FALSE(gather.mayShare(0, 0)) << "a GPU's threads that share the row don't wait";
}

// y = (x[.., HERE] - x[.., THERE], x[.., THERE] + x[.., HERE]), put together of two parts.
constexpr char kHalves[] = R"(
#here = affine_map<(i, k) -> (i, 0, k)>
#there = affine_map<(i, k) -> ($THERE)>
#all = affine_map<(i, k) -> (i, k)>
kern.kernel @halves elementwise {
^bb0(%x: tensor<6x2x24xf32>):
  %e = tensor.empty() : tensor<6x24xf32>
  %p, %q = linalg.generic {indexing_maps = [#here, #there, #all, #all],
                           iterator_types = ["parallel", "parallel"]}
      ins(%x, %x : tensor<6x2x24xf32>, tensor<6x2x24xf32>)
      outs(%e, %e : tensor<6x24xf32>, tensor<6x24xf32>) {
  ^bb0(%a: f32, %b: f32, %o: f32, %u: f32):
    %s = arith.subf %a, %b : f32
    %t = arith.addf %a, %b : f32
    linalg.yield %s, %t : f32, f32
  } -> (tensor<6x24xf32>, tensor<6x24xf32>)
  %w = tensor.empty() : tensor<6x2x24xf32>
  %v = tensor.insert_slice %p into %w[0, $FIRST, 0] [6, 1, 24] [1, 1, 1] : tensor<6x24xf32> into tensor<6x2x24xf32>
  %y = tensor.insert_slice %q into %v[0, 1, 0] [6, 1, 24] [1, 1, 1] : tensor<6x24xf32> into tensor<6x2x24xf32>
  kern.yield %y : tensor<6x2x24xf32>
}
)";

constexpr char kSideBySide[] = R"(
#all = affine_map<(i, k) -> (i, k)>
kern.kernel @halves elementwise {
^bb0(%x: tensor<6x8xf32>):
  %e = tensor.empty() : tensor<6x8xf32>
  %p = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<6x8xf32>) outs(%e : tensor<6x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %s = arith.negf %a : f32
    linalg.yield %s : f32
  } -> tensor<6x8xf32>
  %w = tensor.empty() : tensor<6x16xf32>
  %v = tensor.insert_slice %p into %w[0, 0] [6, 8] [1, 1] : tensor<6x8xf32> into tensor<6x16xf32>
  %y = tensor.insert_slice %p into %v[0, 8] [6, 8] [1, 1] : tensor<6x8xf32> into tensor<6x16xf32>
  kern.yield %y : tensor<6x16xf32>
}
)";

TEST(Hero, aResultInPartsMayTakeThePlaceOfWhatItsPointReads) {
  Kernel halves(substitute(kHalves, {{"THERE", "i, 1, k"}, {"FIRST", "0"}}), {"x86-64"});
  ASSERT_EQ(halves.error(), "");
  EXPECT_TRUE(halves.mayShare(0, 0));
  EXPECT_EQ(halves.shape().items, 6);
  EXPECT_EQ(halves.shape().readBytes, 6u * 2 * 24 * 4);
  EXPECT_EQ(halves.shape().writtenBytes, 6u * 2 * 24 * 4);
  Kernel mirrored(substitute(kHalves, {{"THERE", "5 - i, 1, k"}, {"FIRST", "0"}}), {"x86-64"});
  ASSERT_EQ(mirrored.error(), "");
  EXPECT_FALSE(mirrored.mayShare(0, 0)) << "another item reads what this one writes";
  EXPECT_EQ(refusal(kSideBySide), "the parts of result 0 lie side by side in its innermost "
                                  "dimension");
  EXPECT_EQ(refusal(substitute(kHalves, {{"THERE", "i, 1, k"}, {"FIRST", "1"}})),
            "result 0 is inserted in parts that do not make up a whole");
}

} // namespace
