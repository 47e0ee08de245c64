// Faults planted in a placed function, one at a time, and what the check says of them.
#include "passes/buffers/CheckAliasing.h"
#include "dialects/kern/Kern.h"
#include "test/passes/buffers/PlacedModel.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace lmc;
using testing::HasSubstr;

namespace {

constexpr const char *kMaps = R"(
#all = affine_map<(i, j) -> (i, j)>
#flip = affine_map<(i, j) -> (1 - i, j)>
#row = affine_map<(i, j) -> (i)>
)";

constexpr const char *kKernels = R"(
kern.kernel @negate elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e : tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32):
    %n = arith.negf %a : f32
    linalg.yield %n : f32
  } -> tensor<8x8xf32>
  kern.yield %y : tensor<8x8xf32>
}
kern.kernel @both elementwise {
^bb0(%x: tensor<8x8xf32>):
  %e = tensor.empty() : tensor<8x8xf32>
  %y:2 = linalg.generic {indexing_maps = [#all, #all, #all],
                         iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x8xf32>) outs(%e, %e : tensor<8x8xf32>, tensor<8x8xf32>) {
  ^bb0(%a: f32, %o: f32, %p: f32):
    %n = arith.negf %a : f32
    linalg.yield %n, %a : f32, f32
  } -> (tensor<8x8xf32>, tensor<8x8xf32>)
  kern.yield %y#0, %y#1 : tensor<8x8xf32>, tensor<8x8xf32>
}
lm.variable @x input : tensor<8x8xf32> init none
lm.variable @w input : tensor<8x8xf32> init none
lm.variable @r scalar : tensor<8x8xf32> init none
lm.variable @s scalar : tensor<8x8xf32> init none
)";

// Two temporaries that live together, then a result.
constexpr const char *kTwoValues = R"(
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %w = lm.load @w : tensor<8x8xf32>
  %a = kern.gemm %x, %w : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("a")
  %b = kern.gemm %w, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("b")
  %c = kern.gemm %a, %b : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("c")
  lm.store %c, @r : tensor<8x8xf32>
  return
}
)";

class CheckAliasingTest : public testing::Test {
protected:
  void place(const std::string &text) {
    model.parse((std::string(kMaps) + kKernels + text).c_str());
    planned = *model.plan->getOps<plan_ir::FunctionOp>().begin();
    EXPECT_EQ(check(), "") << "without a fault";
  }

  std::string check() {
    std::string message;
    ScopedDiagnosticHandler handler(&model.context, [&](Diagnostic &diagnostic) {
      message += diagnostic.str();
      return success();
    });
    LogicalResult result = checkAliasing(model.functionOf(planned), planned);
    EXPECT_EQ(succeeded(result), message.empty());
    return message;
  }

  template <typename Op> Op nth(unsigned number) {
    auto ops = planned.getOps<Op>();
    return *std::next(ops.begin(), number);
  }
  plan_ir::SliceOp sliceOf(Value value) { return value.getDefiningOp<plan_ir::SliceOp>(); }

  PlacedModel model;
  plan_ir::FunctionOp planned;
};

} // namespace

TEST_F(CheckAliasingTest, FindsAShiftedSlice) {
  place(kTwoValues);
  plan_ir::SliceOp b = sliceOf(nth<plan_ir::GemmOp>(1).getD());
  b.setOffset(sliceOf(nth<plan_ir::GemmOp>(0).getD()).getOffset() + 64);
  b.setFirst(0), b.setLast(2); // so that nothing but values tells
  sliceOf(nth<plan_ir::GemmOp>(0).getD()).setLast(2);
  planned.setPeakBytes(512);
  EXPECT_THAT(check(),
              HasSubstr("command 2 of @f, plan.gemm (c), reads a, number 0, at bytes [0, 256) of "
                        "@workspace: where bytes from 64 of result 0 of kern.gemm (a) should be, "
                        "there is bytes from 0 of result 0 of kern.gemm (b), written by command 1, "
                        "plan.gemm (b)"));
}

TEST_F(CheckAliasingTest, FindsSwappedSlices) {
  place(kTwoValues);
  plan_ir::GemmOp c = nth<plan_ir::GemmOp>(2);
  Value a = c.getA();
  c.getAMutable().assign(c.getB());
  c.getBMutable().assign(a);
  EXPECT_THAT(check(), HasSubstr("command 2 of @f, plan.gemm (c), reads a, number 0"));
}

TEST_F(CheckAliasingTest, FindsAWriteThatIsTooLong) {
  place(kTwoValues);
  plan_ir::GemmOp b = nth<plan_ir::GemmOp>(1);
  auto type = RankedTensorType::get({8, 16}, Float32Type::get(&model.context));
  b.getD().setType(plan_ir::SliceType::get(&model.context, type));
  EXPECT_THAT(check(), HasSubstr("a slice of 'tensor<8x16xf32>' takes bytes"));
  sliceOf(b.getD()).setOffset(0);
  EXPECT_THAT(check(), HasSubstr("shares bytes [0, 512) of @workspace with another buffer"));
}

TEST_F(CheckAliasingTest, FindsReorderedCommands) {
  place(kTwoValues);
  nth<plan_ir::GemmOp>(2)->moveBefore(nth<plan_ir::GemmOp>(1));
  for (auto slice : planned.getOps<plan_ir::SliceOp>())
    slice.setFirst(0), slice.setLast(2);
  EXPECT_THAT(check(), HasSubstr("plan.gemm (c), reads b, number 1, at bytes [256, 512) of "
                                 "@workspace: where bytes from 0 of result 0 of kern.gemm (b) "
                                 "should be, there is nothing that was computed"));
}

TEST_F(CheckAliasingTest, TakesIndependentCommandsInAnyOrder) {
  place(kTwoValues);
  nth<plan_ir::GemmOp>(0)->moveAfter(nth<plan_ir::GemmOp>(1));
  for (auto slice : planned.getOps<plan_ir::SliceOp>())
    slice.setFirst(0), slice.setLast(2);
  EXPECT_EQ(check(), "");
}

TEST_F(CheckAliasingTest, FindsADroppedCommand) {
  place(kTwoValues);
  nth<plan_ir::GemmOp>(2)->erase();
  EXPECT_THAT(check(), HasSubstr("@f leaves the wrong value in variable @r: where bytes from 0 of "
                                 "result 0 of kern.gemm (c) should be, there is bytes from 0 of "
                                 "variable @r as it was"));
}

TEST_F(CheckAliasingTest, FindsAnotherVariable) {
  place(kTwoValues);
  nth<plan_ir::GemmOp>(2).getD().getDefiningOp<plan_ir::VariableRefOp>().setVariable("s");
  EXPECT_THAT(check(), HasSubstr("leaves the wrong value in variable @r"));
}

TEST_F(CheckAliasingTest, FindsHarmToAVariableThatIsNotStored) {
  place(kTwoValues);
  OpBuilder b(nth<plan_ir::GemmOp>(2));
  b.setInsertionPointAfter(nth<plan_ir::GemmOp>(2));
  auto s = plan_ir::VariableRefOp::create(b, planned.getLoc(), nth<plan_ir::GemmOp>(2).getD().getType(),
                                          "s", 0, 1, 0);
  plan_ir::CopyOp::create(b, planned.getLoc(), nth<plan_ir::GemmOp>(2).getD(), s);
  EXPECT_THAT(check(), HasSubstr("leaves the wrong value in variable @s: where bytes from 0 of "
                                 "variable @s as it was should be, there is bytes from 0 of result "
                                 "0 of kern.gemm (c), written by command 3, plan.copy"));
}

TEST_F(CheckAliasingTest, FindsAnotherTranspose) {
  place(kTwoValues);
  nth<plan_ir::GemmOp>(1).setTransposeB(true);
  EXPECT_THAT(check(), HasSubstr("computes nothing that the function asks for at kern.gemm (b)"));
}

TEST_F(CheckAliasingTest, FindsADroppedAccumulate) {
  place(R"(
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %r = lm.load @r : tensor<8x8xf32>
  %c = kern.gemm %x, %x acc %r : (tensor<8x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("c")
  lm.store %c, @r : tensor<8x8xf32>
  return
}
)");
  nth<plan_ir::GemmOp>(0).setAccumulate(false);
  EXPECT_THAT(check(), HasSubstr("computes nothing that the function asks for at kern.gemm (c)"));
}

TEST_F(CheckAliasingTest, FindsADroppedCopy) {
  constexpr const char *kTrade = R"(
func.func @trade() {
  %x = lm.load @r : tensor<8x8xf32>
  %y = lm.load @s : tensor<8x8xf32>
  lm.store %x, @s : tensor<8x8xf32>
  lm.store %y, @r : tensor<8x8xf32>
  return
}
)";
  for (unsigned number = 0; number < 4; ++number) {
    place(kTrade);
    nth<plan_ir::CopyOp>(number)->erase();
    for (auto slice : planned.getOps<plan_ir::SliceOp>())
      slice.setFirst(0);
    EXPECT_THAT(check(), HasSubstr("leaves the wrong value in variable")) << number;
  }
}

TEST_F(CheckAliasingTest, FindsADeadResultOverALiveOne) {
  place(R"(
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %y:2 = kern.launch @both(%x) : (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>)
  %z = kern.gemm %y#1, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  lm.store %z, @r : tensor<8x8xf32>
  return
}
)");
  plan_ir::LaunchOp launch = nth<plan_ir::LaunchOp>(0);
  launch->setOperand(1, launch.getArgs()[2]);
  EXPECT_THAT(check(), HasSubstr("writes two results to the same bytes"));
}

TEST_F(CheckAliasingTest, FindsAKernelThatReadsItsNeighbourInPlace) {
  place(R"(
kern.kernel @flip elementwise {
^bb0(%x: tensor<2x32xf32>):
  %e = tensor.empty() : tensor<2x32xf32>
  %y = linalg.generic {indexing_maps = [#flip, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x32xf32>) outs(%e : tensor<2x32xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<2x32xf32>
  kern.yield %y : tensor<2x32xf32>
}
lm.variable @p input : tensor<2x32xf32> init none
func.func @f() {
  %x = lm.load @p : tensor<2x32xf32>
  %y = kern.launch @flip(%x) : (tensor<2x32xf32>) -> tensor<2x32xf32>
  %z = kern.launch @flip(%y) : (tensor<2x32xf32>) -> tensor<2x32xf32>
  %u = kern.launch @flip(%z) : (tensor<2x32xf32>) -> tensor<2x32xf32>
  lm.store %u, @p : tensor<2x32xf32>
  return
}
)");
  plan_ir::LaunchOp second = nth<plan_ir::LaunchOp>(1), third = nth<plan_ir::LaunchOp>(2);
  sliceOf(second.getArgs()[0]).setLast(2);
  third->setOperand(0, second.getArgs()[0]);
  second->setOperand(1, second.getArgs()[0]);
  EXPECT_THAT(check(), HasSubstr("command 1 of @f, plan.launch @flip, writes a result over an "
                                 "input, number 0, which it may still have to read"));
}

TEST_F(CheckAliasingTest, FindsALibraryCallInPlace) {
  place(kTwoValues);
  plan_ir::GemmOp c = nth<plan_ir::GemmOp>(2);
  c.getDMutable().assign(c.getA());
  EXPECT_THAT(check(), HasSubstr("writes d over a, number 0, which it may still have to read"));
}

TEST_F(CheckAliasingTest, FindsAShortLifetime) {
  place(kTwoValues);
  sliceOf(nth<plan_ir::GemmOp>(0).getD()).setLast(1);
  EXPECT_THAT(check(), HasSubstr("uses a slice that lives from command 0 to 1"));
}

TEST_F(CheckAliasingTest, FindsBuffersInOnePlaceAtOnce) {
  place(kTwoValues);
  plan_ir::SliceOp a = sliceOf(nth<plan_ir::GemmOp>(0).getD());
  sliceOf(nth<plan_ir::GemmOp>(1).getD()).setOffset(a.getOffset());
  EXPECT_THAT(check(), HasSubstr("with another buffer: it lives from command 1 to 2, the other "
                                 "from 0 to 2"));
}

TEST_F(CheckAliasingTest, FindsAnUnalignedBuffer) {
  place(kTwoValues);
  planned.setPeakBytes(516);
  for (auto arena : model.plan->getOps<plan_ir::ArenaOp>())
    arena.setBytes(4096);
  sliceOf(nth<plan_ir::GemmOp>(1).getD()).setOffset(260);
  EXPECT_THAT(check(), HasSubstr("a buffer begins at byte 260 of @workspace, which is not aligned"));
}

TEST_F(CheckAliasingTest, FindsASliceOutsideOfItsArena) {
  place(kTwoValues);
  sliceOf(nth<plan_ir::GemmOp>(1).getD()).setOffset(320);
  EXPECT_THAT(check(), HasSubstr("takes bytes [320, 576) of 512"));
}

TEST_F(CheckAliasingTest, FindsVariablesThatShareBytes) {
  place(kTwoValues);
  for (auto variable : model.plan->getOps<plan_ir::VariableOp>())
    if (variable.getSymName() == "w")
      variable.setOffset(64);
  EXPECT_THAT(check(), HasSubstr("@w shares bytes with @x"));
}

TEST_F(CheckAliasingTest, FindsAnotherPitch) {
  constexpr const char *kColumns = R"(
kern.kernel @half elementwise {
^bb0(%x: tensor<8x4xf32>):
  %e = tensor.empty() : tensor<8x4xf32>
  %y = linalg.generic {indexing_maps = [#all, #all], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<8x4xf32>) outs(%e : tensor<8x4xf32>) {
  ^bb0(%a: f32, %o: f32):
    linalg.yield %a : f32
  } -> tensor<8x4xf32>
  kern.yield %y : tensor<8x4xf32>
}
lm.variable @h scalar : tensor<8x4xf32> init none
func.func @f() {
  %x = lm.load @x : tensor<8x8xf32>
  %a = kern.gemm %x, %x : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("a")
  %right = tensor.extract_slice %a[0, 4] [8, 4] [1, 1] : tensor<8x8xf32> to tensor<8x4xf32>
  %y = kern.launch @half(%right) : (tensor<8x4xf32>) -> tensor<8x4xf32>
  lm.store %y, @h : tensor<8x4xf32>
  return
}
)";
  place(kColumns);
  plan_ir::LaunchOp launch = nth<plan_ir::LaunchOp>(0);
  sliceOf(launch.getArgs()[0]).setPitch(28);
  EXPECT_THAT(check(), HasSubstr("has a kernel that takes an input for 8 runs with a pitch of 32 "
                                 "bytes, but it has 8 with 28"));

  // With a kernel that agrees, the columns are still the wrong ones.
  auto kernels = model.plan->getOps<kern::KernelOp>();
  for (kern::KernelOp kernel : kernels)
    if (kernel.getSymName() == launch.getKernel())
      kernel.setArgPitches(ArrayRef<int64_t>{7, 0});
  EXPECT_THAT(check(), HasSubstr("reads an input, number 0, at bytes [16, 228) of @workspace"));

  place(kColumns);
  sliceOf(nth<plan_ir::LaunchOp>(0).getArgs()[0]).setOffset(0);
  EXPECT_THAT(check(), HasSubstr("where bytes from 16 of result 0 of kern.gemm (a) should be, "
                                 "there is bytes from 0"));

  place(kColumns);
  sliceOf(nth<plan_ir::LaunchOp>(0).getArgs()[0]).setRows(5);
  EXPECT_THAT(check(), HasSubstr("has 5 runs with a pitch of 32 bytes"));
}

TEST_F(CheckAliasingTest, FindsScratchOverAnOperand) {
  place(R"(
lm.variable @q input : tensor<4x8xbf16> init none
lm.variable @k input : tensor<4x4xbf16> init none
lm.variable @dq scalar : tensor<4x8xbf16> init none
func.func @f() {
  %q = lm.load @q : tensor<4x8xbf16>
  %k = lm.load @k : tensor<4x4xbf16>
  %o, %lse = kern.attention %q, %k, %k : (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) -> (tensor<4x8xbf16>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64}
  %dq, %dk, %dv = kern.attention_grad %o, %q, %k, %k, %o, %lse : (tensor<4x8xbf16>, tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>, tensor<4x8xbf16>, tensor<4x4xf32>) -> (tensor<4x8xbf16>, tensor<4x4xbf16>, tensor<4x4xbf16>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("grad")
  lm.store %dq, @dq : tensor<4x8xbf16>
  return
}
)");
  plan_ir::AttentionGradOp grad = nth<plan_ir::AttentionGradOp>(0);
  plan_ir::SliceOp scratch = sliceOf(grad.getWorkspace()), dk = sliceOf(grad.getDk());
  scratch.setOffset(dk.getOffset());
  planned.setPeakBytes(4096);
  for (auto arena : model.plan->getOps<plan_ir::ArenaOp>())
    arena.setBytes(4096);
  EXPECT_THAT(check(), HasSubstr("has an operand or result in its scratch memory"));
}

TEST_F(CheckAliasingTest, FindsOtherStartsOfDocuments) {
  place(R"(
lm.variable @q input : tensor<4x8xf32> init none
lm.variable @ids input : tensor<4xi32> init none
lm.variable @starts input : tensor<4xi32> init none
lm.variable @dq scalar : tensor<4x8xf32> init none
func.func @f() {
  %q = lm.load @q : tensor<4x8xf32>
  %s = lm.load @starts : tensor<4xi32>
  %o, %lse = kern.attention %q, %q, %q starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x4xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("attention")
  %dq, %dk, %dv = kern.attention_grad %o, %q, %q, %q, %o, %lse starts %s : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x4xf32>, tensor<4xi32>) -> (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) {head_dim = 2 : i64, seq = 2 : i64, scale = 0.5 : f64, window = 0 : i64} loc("grad")
  lm.store %dq, @dq : tensor<4x8xf32>
  return
}
)");
  auto attention = nth<plan_ir::AttentionOp>(0);
  auto grad = nth<plan_ir::AttentionGradOp>(0);
  auto starts = attention.getStarts().getDefiningOp<plan_ir::VariableRefOp>();
  auto others = cast<plan_ir::VariableRefOp>(OpBuilder(starts).clone(*starts));
  others.setVariable("ids");
  attention.getStartsMutable().assign(others.getResult());
  EXPECT_THAT(check(), HasSubstr("plan.attention (attention), reads starts, number 3"));
  attention.getStartsMutable().assign(starts.getResult());
  grad.getStartsMutable().assign(others.getResult());
  EXPECT_THAT(check(), HasSubstr("plan.attention_grad (grad), reads starts, number 6"));
  grad.getStartsMutable().clear();
  EXPECT_THAT(check(), testing::Not(""));
}
