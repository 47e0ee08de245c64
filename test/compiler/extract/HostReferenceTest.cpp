// The program of an extracted kernel, compiled for the host: the CPU's code is launched in the
// kernel's place, and must agree with the reference that is printed from the region.
#include "compiler/extract/HostReference.h"
#include "test/compiler/extract/HostProgram.h"
#include "test/compiler/targets/cpu/KernelRunner.h"
#include "test/compiler/targets/cpu/KernelTexts.h"
#include "test/passes/fusion/AdamW8bitKernel.h"

#include "llvm/Support/FormatVariadic.h"

using namespace lmc;
using namespace lmc::codegen::test;
using namespace mlir;

namespace {

// The CPU's code of one region, checked with the reference of another.
class RegionProgram {
public:
  explicit RegionProgram(const std::string &text) : kernel(text) {}

  // The exit code; -1: there is no program. Unless `stores`, the kernel does nothing.
  int run(const std::string &referenceText, bool stores = true) {
    std::string library = program.write(
        "kernel.so", llvm::StringRef(reinterpret_cast<const char *>(kernel.image().object.data()),
                                     kernel.image().object.size()));
    lmc::test::CudaPlan plan;
    plan.kernel("kernel",
                llvm::formatv("#include <cstdint>\n"
                              "#include <dlfcn.h>\n"
                              "extern \"C\" void kernel(void **arguments) {{\n"
                              "  static void *library = dlopen(\"{0}\", RTLD_NOW);\n"
                              "  auto *entry = reinterpret_cast<void (*)(void *const *, int64_t, "
                              "int64_t)>(dlsym(library, \"kernel\"));\n"
                              "  void *tensors[{1}];\n"
                              "  for (int i = 0; i < {1}; ++i)\n"
                              "    tensors[i] = *static_cast<void **>(arguments[i]);\n"
                              "  if ({3})\n"
                              "    entry(tensors, 0, {2});\n"
                              "}\n",
                              library, tensors(), kernel.shape().items, stores),
                referenceText);
    auto text = plan.extract("kernel");
    if (!text) {
      ADD_FAILURE() << llvm::toString(text.takeError());
      return -1;
    }
    return program.run(*text);
  }

  std::string log() const { return program.log(); }

  Kernel kernel;

private:
  unsigned tensors() {
    return kernel.body().getNumArguments() + kernel.body().getTerminator()->getNumOperands();
  }

  lmc::test::HostProgram program;
};

std::string text(const char *form) {
  std::string sums =
      substitute(form, {{"after", ""}, {"yield", "%sums : tensor<$Rx$Cxf32>, tensor<$Bx$Cxf32>"}});
  return substitute(sums,
                    {{"R", "24"}, {"C", "96"}, {"T", "bf16"}, {"S", "6"}, {"P", "2"}, {"B", "12"}});
}

// y0 = $A x in f32, y1 the same in bf16, y2 = code + $B, y3 = id + $D.
const char *kManyTypes = R"(
#i = affine_map<(i) -> (i)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<512xf32>, %code: tensor<512xi8>, %id: tensor<512xi32>):
  %a = arith.constant $A : f32
  %b = arith.constant $B : i8
  %d = arith.constant $D : i32
  %e = tensor.empty() : tensor<512xf32>
  %eb = tensor.empty() : tensor<512xbf16>
  %ec = tensor.empty() : tensor<512xi8>
  %ei = tensor.empty() : tensor<512xi32>
  %y:4 = linalg.generic {indexing_maps = [#i, #i, #i, #i, #i, #i, #i], iterator_types = ["parallel"]}
      ins(%x, %code, %id : tensor<512xf32>, tensor<512xi8>, tensor<512xi32>)
      outs(%e, %eb, %ec, %ei : tensor<512xf32>, tensor<512xbf16>, tensor<512xi8>,
           tensor<512xi32>) {
  ^bb0(%s: f32, %c: i8, %n: i32, %o0: f32, %o1: bf16, %o2: i8, %o3: i32):
    %p = arith.mulf %s, %a : f32
    %q = arith.truncf %p : f32 to bf16
    %r = arith.addi %c, %b : i8
    %t = arith.addi %n, %d : i32
    linalg.yield %p, %q, %r, %t : f32, bf16, i8, i32
  } -> (tensor<512xf32>, tensor<512xbf16>, tensor<512xi8>, tensor<512xi32>)
  kern.yield %y#0, %y#1, %y#2, %y#3 : tensor<512xf32>, tensor<512xbf16>, tensor<512xi8>,
                                      tensor<512xi32>
})";

std::string manyTypes(const char *a, const char *b, const char *d) {
  return substitute(kManyTypes, {{"A", a}, {"B", b}, {"D", d}});
}

// y0 = $A x as E4M3, y1 the same as E5M2.
const char *kEightBits = R"(
#i = affine_map<(i) -> (i)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<512xf32>):
  %a = arith.constant $A : f32
  %e4 = tensor.empty() : tensor<512xf8E4M3FN>
  %e5 = tensor.empty() : tensor<512xf8E5M2>
  %y:2 = linalg.generic {indexing_maps = [#i, #i, #i], iterator_types = ["parallel"]}
      ins(%x : tensor<512xf32>) outs(%e4, %e5 : tensor<512xf8E4M3FN>, tensor<512xf8E5M2>) {
  ^bb0(%s: f32, %o0: f8E4M3FN, %o1: f8E5M2):
    %p = arith.mulf %s, %a : f32
    %q = arith.truncf %p : f32 to f8E4M3FN
    %r = arith.truncf %p : f32 to f8E5M2
    linalg.yield %q, %r : f8E4M3FN, f8E5M2
  } -> (tensor<512xf8E4M3FN>, tensor<512xf8E5M2>)
  kern.yield %y#0, %y#1 : tensor<512xf8E4M3FN>, tensor<512xf8E5M2>
})";

std::string eightBits(const char *a) { return substitute(kEightBits, {{"A", a}}); }

class HostReference : public testing::TestWithParam<std::string> {};

} // namespace

TEST_P(HostReference, AgreesWithTheCpusCode) {
  RegionProgram program(GetParam());
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(GetParam()), 0) << program.log();
  EXPECT_NE(program.log().find("check: 0 of "), std::string::npos) << program.log();
}

INSTANTIATE_TEST_SUITE_P(Kernels, HostReference,
                         testing::Values(text(kResidualRmsNorm), text(kBlockSums),
                                         text(kCrossEntropy), text(kRope), text(kGather),
                                         text(kColumnSum), text(kAdamW), adamW8bitKernel(7),
                                         manyTypes("2.0", "1", "3"), eightBits("300.0")));

TEST(HostReference, TellsAWrongKernel) {
  std::string right = text(kResidualRmsNorm), wrong = right;
  wrong.replace(wrong.find("1.0e-5"), 6, "1.0e-1"); // another epsilon
  RegionProgram program(right);
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(wrong), 1) << program.log();
  EXPECT_NE(program.log().find(", not "), std::string::npos) << program.log();
}

// Even if all results are 0, which fresh memory of the host is too.
TEST(HostReference, TellsAKernelThatStoresNothing) {
  const std::string zeros = manyTypes("0.0", "1", "3");
  RegionProgram program(zeros);
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(zeros), 0) << program.log();
  EXPECT_EQ(program.run(zeros, /*stores=*/false), 1) << program.log();
  const std::string log = program.log();
  EXPECT_NE(log.find("out0[0] is -nan, not "), std::string::npos) << log;
  EXPECT_GE(std::atoi(log.c_str() + log.find("check: ") + 7), 3 * 512) << log; // not all of i8
}

TEST(HostReference, EveryResultHasTheToleranceOfItsType) {
  RegionProgram program(manyTypes("2.0", "1", "3"));
  ASSERT_EQ(program.kernel.error(), "");
  auto isTold = [&](const char *result) { return program.log().find(result) != std::string::npos; };
  // A thousandth is less than bf16 tells, and more than f32 may be off.
  EXPECT_EQ(program.run(manyTypes("2.002", "1", "3")), 1) << program.log();
  EXPECT_TRUE(isTold("out0[") && !isTold("out1[")) << program.log();
  EXPECT_EQ(program.run(manyTypes("2.00001", "1", "3")), 0) << program.log();
  // Codes may be rounded either way, around the end of i8 too; indices are equal.
  EXPECT_EQ(program.run(manyTypes("2.0", "2", "3")), 0) << program.log();
  EXPECT_EQ(program.run(manyTypes("2.0", "3", "3")), 1) << program.log();
  EXPECT_TRUE(isTold("out2[")) << program.log();
  EXPECT_EQ(program.run(manyTypes("2.0", "1", "4")), 1) << program.log();
  EXPECT_TRUE(isTold("out3[")) << program.log();
}

TEST(HostReference, EightBitsMayBeTheNextCode) {
  RegionProgram program(eightBits("300.0"));
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(eightBits("301.0")), 0) << program.log();
  EXPECT_EQ(program.run(eightBits("400.0")), 1) << program.log();
  EXPECT_NE(program.log().find("out0["), std::string::npos) << program.log();
}

// However small results are: gradients of a head with many words are.
TEST(HostReference, TellsWrongResultsOfAnySize) {
  RegionProgram program(manyTypes("1.0e-6", "1", "3"));
  ASSERT_EQ(program.kernel.error(), "");
  EXPECT_EQ(program.run(manyTypes("1.0e-6", "1", "3")), 0) << program.log();
  EXPECT_EQ(program.run(manyTypes("1.1e-6", "1", "3")), 1) << program.log();
  // Most of the f32 results, and of the bf16 ones.
  const std::string log = program.log();
  EXPECT_GT(std::atoi(log.c_str() + log.find("check: ") + 7), 800) << log;
}

// A first pass with moments of both signs and rates below zero would be given up for its NaNs.
TEST(HostReference, AnOptimizersInputsAreWhatTheyMayBe) {
  std::string error;
  OwningOpRef<ModuleOp> module = parse(adamW8bitKernel(7), error);
  ASSERT_TRUE(module) << error;
  kern::KernelOp op = *module->getOps<kern::KernelOp>().begin();
  // Parameter, gradient, codes and scale of each moment, nine scalars.
  const std::vector<bool> wanted{false, false, false, true, false, true, true, true,
                                 true,  true,  true,  true, true,  true, true};
  std::vector<bool> got;
  for (BlockArgument argument : op.getBody().getArguments())
    got.push_back(isPositive(argument));
  EXPECT_EQ(got, wanted);
  std::string given = adamW8bitKernel(7);
  RegionProgram program(given);
  EXPECT_EQ(program.run(given), 0);
  EXPECT_EQ(program.log().find("NaN"), std::string::npos) << program.log();
}

TEST(HostReference, PrecisionIsThatOfTheCoarsestStepOnAResultsWay) {
  std::string error;
  OwningOpRef<ModuleOp> module = parse(adamW8bitKernel(7), error);
  ASSERT_TRUE(module) << error;
  auto results = (*module->getOps<kern::KernelOp>().begin()).getBody().front().getTerminator();
  EXPECT_TRUE(precisionOf(results->getOperand(0)).isF32()) << "the copy's rounding is not on it";
  EXPECT_TRUE(precisionOf(results->getOperands().back()).isBF16());

  // An element that is read by its number is rounded on neither side.
  module = parse(R"(
#i = affine_map<(i) -> (i)>
kern.kernel @kernel elementwise {
^bb0(%x: tensor<8xbf16>, %id: tensor<4xindex>):
  %e = tensor.empty() : tensor<4xf32>
  %y = linalg.generic {indexing_maps = [#i, #i], iterator_types = ["parallel"]}
      ins(%id : tensor<4xindex>) outs(%e : tensor<4xf32>) {
  ^bb0(%n: index, %o: f32):
    %s = tensor.extract %x[%n] : tensor<8xbf16>
    %f = arith.extf %s : bf16 to f32
    linalg.yield %f : f32
  } -> tensor<4xf32>
  kern.yield %y : tensor<4xf32>
})",
                 error);
  ASSERT_TRUE(module) << error;
  results = (*module->getOps<kern::KernelOp>().begin()).getBody().front().getTerminator();
  EXPECT_TRUE(precisionOf(results->getOperand(0)).isF32());
}
