// Forms of printed kernels that a Llama does not have, or only in sizes that take long, against
// the CPU's code of the same region.
#include "test/simt/kernels/Collection.h"

#include <gtest/gtest.h>

using namespace lmc;
using namespace lmc::simt;

namespace {

std::vector<CheckedKernel> expectRight(const std::string &text, const std::vector<Values> &all) {
  Collection kernels;
  for (const Values &values : all)
    kernels.add(text, values);
  return kernels.expectRight();
}

// y = x + table[max of x's row]: a row of the table whose number only a reduction gives.
constexpr char kLateGather[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
kern.kernel @late row_reduction {
^bb0(%x: tensor<$Rx$Cxi32>, %table: tensor<7x$Cxf32>):
  %zero = arith.constant 0 : i32
  %er = tensor.empty() : tensor<$Rxi32>
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %f = linalg.fill ins(%zero : i32) outs(%er : tensor<$Rxi32>) -> tensor<$Rxi32>
  %s = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxi32>) outs(%f : tensor<$Rxi32>) {
  ^bb0(%a: i32, %acc: i32):
    %t = arith.maxsi %acc, %a : i32
    linalg.yield %t : i32
  } -> tensor<$Rxi32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s : tensor<$Rx$Cxi32>, tensor<$Rxi32>) outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%v: i32, %a: i32, %o: f32):
    %i = arith.index_cast %a : i32 to index
    %j = linalg.index 1 : index
    %t = tensor.extract %table[%i, %j] : tensor<7x$Cxf32>
    %g = arith.sitofp %v : i32 to f32
    %u = arith.addf %g, %t : f32
    linalg.yield %u : f32
  } -> tensor<$Rx$Cxf32>
  kern.yield %y : tensor<$Rx$Cxf32>
})";

// y = exp(x - max) / sum + x[r, ids[r]], with two sums of exponentials of the one maximum.
constexpr char kSoftmax[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#o = affine_map<(r) -> (r)>
kern.kernel @softmax row_reduction {
^bb0(%x: tensor<$Rx$Cxbf16>, %ids: tensor<$Rxi32>):
  %low = arith.constant 0xFF800000 : f32
  %zero = arith.constant 0.0 : f32
  %er = tensor.empty() : tensor<$Rxf32>
  %e = tensor.empty() : tensor<$Rx$Cxbf16>
  %f = linalg.fill ins(%low : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %g = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %m = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxbf16>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%b: bf16, %acc: f32):
    %a = arith.extf %b : bf16 to f32
    %t = arith.maximumf %acc, %a : f32
    linalg.yield %t : f32
  } -> tensor<$Rxf32>
  %s, %twice = linalg.generic {indexing_maps = [#rc, #r, #r, #r],
                               iterator_types = ["parallel", "reduction"]}
      ins(%x, %m : tensor<$Rx$Cxbf16>, tensor<$Rxf32>)
      outs(%g, %g : tensor<$Rxf32>, tensor<$Rxf32>) {
  ^bb0(%b: bf16, %k: f32, %acc: f32, %other: f32):
    %a = arith.extf %b : bf16 to f32
    %d = arith.subf %a, %k : f32
    %p = math.exp %d : f32
    %t = arith.addf %acc, %p : f32
    %q = arith.addf %d, %d : f32
    %u = math.exp %d : f32
    %v = arith.addf %other, %u : f32
    linalg.yield %t, %v : f32, f32
  } -> (tensor<$Rxf32>, tensor<$Rxf32>)
  %at = linalg.generic {indexing_maps = [#o, #o], iterator_types = ["parallel"]}
      ins(%ids : tensor<$Rxi32>) outs(%er : tensor<$Rxf32>) {
  ^bb0(%id: i32, %o: f32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %id : i32 to index
    %b = tensor.extract %x[%i, %j] : tensor<$Rx$Cxbf16>
    %a = arith.extf %b : bf16 to f32
    linalg.yield %a : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #r, #r, #rc],
                       iterator_types = ["parallel", "parallel"]}
      ins(%x, %m, %s, %at : tensor<$Rx$Cxbf16>, tensor<$Rxf32>, tensor<$Rxf32>, tensor<$Rxf32>)
      outs(%e : tensor<$Rx$Cxbf16>) {
  ^bb0(%b: bf16, %k: f32, %n: f32, %h: f32, %o: bf16):
    %a = arith.extf %b : bf16 to f32
    %u = arith.subf %a, %k : f32
    %p = math.exp %u : f32
    %v = arith.divf %p, %n : f32
    %t = arith.addf %v, %h : f32
    %z = arith.truncf %t : f32 to bf16
    linalg.yield %z : bf16
  } -> tensor<$Rx$Cxbf16>
  kern.yield %y, %s, %twice, %m : tensor<$Rx$Cxbf16>, tensor<$Rxf32>, tensor<$Rxf32>, tensor<$Rxf32>
})";

// Rows of a domain of three dimensions that are read in another order of the outer two, in f64.
constexpr char kTurned[] = R"(
#abc = affine_map<(a, b, c) -> (a, b, c)>
#bac = affine_map<(a, b, c) -> (b, a, c)>
#bc = affine_map<(a, b, c) -> (b, c)>
#ab = affine_map<(a, b, c) -> (a, b)>
kern.kernel @turned row_reduction {
^bb0(%x: tensor<$Bx$Ax$Cxf64>, %w: tensor<$Bx$Cxf64>):
  %one = arith.constant 1.0 : f64
  %er = tensor.empty() : tensor<$Ax$Bxf64>
  %e = tensor.empty() : tensor<$Ax$Bx$Cxf64>
  %f = linalg.fill ins(%one : f64) outs(%er : tensor<$Ax$Bxf64>) -> tensor<$Ax$Bxf64>
  %s, %m = linalg.generic {indexing_maps = [#bac, #bc, #ab, #ab],
                           iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<$Bx$Ax$Cxf64>, tensor<$Bx$Cxf64>)
      outs(%f, %f : tensor<$Ax$Bxf64>, tensor<$Ax$Bxf64>) {
  ^bb0(%a: f64, %v: f64, %acc: f64, %low: f64):
    %p = arith.mulf %a, %v : f64
    %t = arith.addf %acc, %p : f64
    %u = arith.minnumf %low, %a : f64
    linalg.yield %t, %u : f64, f64
  } -> (tensor<$Ax$Bxf64>, tensor<$Ax$Bxf64>)
  %y = linalg.generic {indexing_maps = [#bac, #ab, #ab, #abc],
                       iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x, %s, %m : tensor<$Bx$Ax$Cxf64>, tensor<$Ax$Bxf64>, tensor<$Ax$Bxf64>)
      outs(%e : tensor<$Ax$Bx$Cxf64>) {
  ^bb0(%a: f64, %b: f64, %d: f64, %o: f64):
    %k = arith.subf %a, %b : f64
    %t = arith.mulf %k, %d : f64
    linalg.yield %t : f64
  } -> tensor<$Ax$Bx$Cxf64>
  kern.yield %y : tensor<$Ax$Bx$Cxf64>
})";

// Sums of blocks of rows that start from a half, with a weight that all rows share.
constexpr char kBlocks[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
kern.kernel @blocks row_reduction {
^bb0(%x: tensor<$Rx$Cxf32>, %w: tensor<$Cxf32>):
  %zero = arith.constant 0.0 : f32
  %half = arith.constant 0.5 : f32
  %e = tensor.empty() : tensor<$Rx$Cxf32>
  %er = tensor.empty() : tensor<$Rxf32>
  %eb = tensor.empty() : tensor<$Bx$Cxf32>
  %ep = tensor.empty() : tensor<2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%er : tensor<$Rxf32>) -> tensor<$Rxf32>
  %fb = linalg.fill ins(%half : f32) outs(%eb : tensor<$Bx$Cxf32>) -> tensor<$Bx$Cxf32>
  %s = linalg.generic {indexing_maps = [#rc, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<$Rx$Cxf32>) outs(%f : tensor<$Rxf32>) {
  ^bb0(%a: f32, %acc: f32):
    %t = arith.addf %acc, %a : f32
    linalg.yield %t : f32
  } -> tensor<$Rxf32>
  %y = linalg.generic {indexing_maps = [#rc, #r, #c, #rc], iterator_types = ["parallel", "parallel"]}
      ins(%x, %s, %w : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<$Cxf32>)
      outs(%e : tensor<$Rx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %v: f32, %o: f32):
    %k = arith.mulf %a, %v : f32
    %t = arith.addf %k, %b : f32
    linalg.yield %t : f32
  } -> tensor<$Rx$Cxf32>
  %z = linalg.generic {indexing_maps = [affine_map<(b, p, c) -> (b * 2 + p, c)>,
                                        affine_map<(b, p, c) -> (b * 2 + p)>,
                                        affine_map<(b, p, c) -> (p)>,
                                        affine_map<(b, p, c) -> (b, c)>],
                       iterator_types = ["parallel", "reduction", "parallel"]}
      ins(%x, %s, %ep : tensor<$Rx$Cxf32>, tensor<$Rxf32>, tensor<2xf32>)
      outs(%fb : tensor<$Bx$Cxf32>) {
  ^bb0(%a: f32, %b: f32, %q: f32, %acc: f32):
    %k = arith.subf %a, %b : f32
    %t = arith.addf %acc, %k : f32
    linalg.yield %t : f32
  } -> tensor<$Bx$Cxf32>
  kern.yield %y, %z : tensor<$Rx$Cxf32>, tensor<$Bx$Cxf32>
})";

// A sum and a product of i64 over the rows; the sum starts from a tensor.
constexpr char kColumns[] = R"(
#rc = affine_map<(r, c) -> (r, c)>
#r = affine_map<(r, c) -> (r)>
#c = affine_map<(r, c) -> (c)>
kern.kernel @columns column_reduction {
^bb0(%x: tensor<$Rx$Cxi64>, %w: tensor<$Rxi64>, %v: tensor<$Cxi64>, %old: tensor<$Cxi64>):
  %one = arith.constant 1 : i64
  %e = tensor.empty() : tensor<$Cxi64>
  %f = linalg.fill ins(%one : i64) outs(%e : tensor<$Cxi64>) -> tensor<$Cxi64>
  %s, %p = linalg.generic {indexing_maps = [#rc, #r, #c, #c, #c],
                           iterator_types = ["reduction", "parallel"]}
      ins(%x, %w, %v : tensor<$Rx$Cxi64>, tensor<$Rxi64>, tensor<$Cxi64>)
      outs(%old, %f : tensor<$Cxi64>, tensor<$Cxi64>) {
  ^bb0(%a: i64, %b: i64, %d: i64, %acc: i64, %pr: i64):
    %m = arith.muli %a, %b : i64
    %n = arith.addi %m, %d : i64
    %t = arith.addi %acc, %n : i64
    %u = arith.muli %pr, %n : i64
    linalg.yield %t, %u : i64, i64
  } -> (tensor<$Cxi64>, tensor<$Cxi64>)
  kern.yield %s, %p : tensor<$Cxi64>, tensor<$Cxi64>
})";

// One row: a maximum, what is below it from what was there before, and both put to use.
constexpr char kSingle[] = R"(
#i = affine_map<(i) -> (i)>
#s = affine_map<(i) -> ()>
kern.kernel @single row_reduction {
^bb0(%x: tensor<$Nxf32>, %old: tensor<f32>, %scale: tensor<f32>):
  %low = arith.constant 0xFF800000 : f32
  %e = tensor.empty() : tensor<f32>
  %ey = tensor.empty() : tensor<$Nxf32>
  %f = linalg.fill ins(%low : f32) outs(%e : tensor<f32>) -> tensor<f32>
  %m = linalg.generic {indexing_maps = [#i, #s], iterator_types = ["reduction"]}
      ins(%x : tensor<$Nxf32>) outs(%f : tensor<f32>) {
  ^bb0(%a: f32, %h: f32):
    %t = arith.maxnumf %h, %a : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  %s = linalg.generic {indexing_maps = [#i, #s, #s], iterator_types = ["reduction"]}
      ins(%x, %m : tensor<$Nxf32>, tensor<f32>) outs(%old : tensor<f32>) {
  ^bb0(%a: f32, %b: f32, %h: f32):
    %d = arith.subf %a, %b : f32
    %t = arith.addf %h, %d : f32
    linalg.yield %t : f32
  } -> tensor<f32>
  %y = linalg.generic {indexing_maps = [#i, #s, #s, #i], iterator_types = ["parallel"]}
      ins(%x, %s, %scale : tensor<$Nxf32>, tensor<f32>, tensor<f32>) outs(%ey : tensor<$Nxf32>) {
  ^bb0(%a: f32, %b: f32, %q: f32, %o: f32):
    %d = arith.mulf %a, %q : f32
    %t = arith.subf %d, %b : f32
    linalg.yield %t : f32
  } -> tensor<$Nxf32>
  kern.yield %y, %s : tensor<$Nxf32>, tensor<f32>
})";

} // namespace

TEST(PrintedEdges, aRowThatAReductionNames) {
  expectRight(kLateGather, {{{"R", "3"}, {"C", "40"}}, {{"R", "3"}, {"C", "1500"}}});
}

TEST(PrintedEdges, softmaxInRegistersAndOnline) {
  std::vector<Values> all;
  for (const char *columns : {"50", "4098", "83201", "90112"})
    all.push_back({{"R", "1"}, {"C", columns}});
  expectRight(kSoftmax, all);
}

TEST(PrintedEdges, threeDimensionsInF64) {
  std::vector<Values> all = {{{"A", "3"}, {"B", "4"}, {"C", "50"}}};
  for (const char *columns : {"1", "50", "1001", "20500"})
    all.push_back({{"A", "1"}, {"B", "2"}, {"C", columns}});
  expectRight(kTurned, all);
}

// In registers of a warp and of a block, and in the result's memory.
TEST(PrintedEdges, sumsOfBlocksOfRows) {
  std::vector<Values> all;
  for (const char *columns : {"70", "1024", "5000", "33000"})
    all.push_back({{"R", "4"}, {"B", "2"}, {"C", columns}});
  bool fromMemory = false;
  for (const CheckedKernel &kernel : expectRight(kBlocks, all)) {
    const Traffic &x = kernel.traffic[0], &y = kernel.traffic[2], &sums = kernel.traffic[3];
    const codegen::GlobalBytes &again = kernel.cuda.again;
    EXPECT_EQ(x.loaded + sums.loaded, kernel.arguments[0].bytes + again.read) << kernel.name;
    EXPECT_EQ(y.stored + sums.stored, kernel.cuda.bytes.written + again.written) << kernel.name;
    fromMemory |= again.written > 0;
  }
  EXPECT_TRUE(fromMemory) << "one of the rows is too long for registers";
}

TEST(PrintedEdges, columnsOfIntegers) {
  std::vector<Values> all;
  for (const char *columns : {"1", "5", "130"})
    for (const char *rows : {"1", "129", "1001"})
      all.push_back({{"R", rows}, {"C", columns}});
  expectRight(kColumns, all);
}

TEST(PrintedEdges, aSingleRow) {
  std::vector<Values> all;
  for (const char *elements : {"1", "31", "3000", "40001"})
    all.push_back({{"N", elements}});
  expectRight(kSingle, all);
}

TEST(PrintedEdges, drawnShapes) {
  auto plain = [](Extents e, Draw &draw) -> Values {
    return {{"R", std::to_string(e.rows)}, {"C", std::to_string(e.columns)}};
  };
  expectRightInDrawnShapes(kLateGather, 5, {100, 4000}, plain);
  expectRightInDrawnShapes(kSoftmax, 5, {100, 20000}, plain);
  expectRightInDrawnShapes(kColumns, 5, {2000, 500}, plain);
  expectRightInDrawnShapes(kTurned, 5, {100, 4000}, [](Extents e, Draw &draw) -> Values {
    return {{"A", std::to_string(draw.between(1, 5))},
            {"B", std::to_string(e.rows)},
            {"C", std::to_string(e.columns)}};
  });
  expectRightInDrawnShapes(kBlocks, 5, {50, 6000}, [](Extents e, Draw &draw) -> Values {
    return {{"R", std::to_string(2 * e.rows)},
            {"B", std::to_string(e.rows)},
            {"C", std::to_string(e.columns)}};
  });
  expectRightInDrawnShapes(kSingle, 5, {1, 20000}, [](Extents e, Draw &draw) -> Values {
    return {{"N", std::to_string(e.columns)}};
  });
}
