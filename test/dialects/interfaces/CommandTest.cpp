// An op on tensors and the command that it becomes declare the same operands.
#include "dialects/interfaces/Command.h"

#include "compiler/driver/Registration.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace lmc;

namespace {

const char *const kOps = R"(
func.func @ops(%a: tensor<8x16xf32>, %b: tensor<16x4xf32>, %d: tensor<8x4xf32>, %bias: tensor<4xf32>,
               %s: tensor<8xi32>, %lse: tensor<8x2xf32>, %t: tensor<4x4xf32>, %w: tensor<5x4xf32>,
               %l: tensor<4x3xf32>, %m: tensor<12x4xf32>, %o: tensor<4xi32>) {
  %0 = kern.gemm %a, %b : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  %1 = kern.gemm %a, %b acc %d bias %bias : (tensor<8x16xf32>, tensor<16x4xf32>, tensor<8x4xf32>, tensor<4xf32>) -> tensor<8x4xf32>
  %2:2 = kern.attention %a, %a, %a : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<8x16xf32>, tensor<8x2xf32>) {head_dim = 8 : i64, seq = 4 : i64, scale = 1.0, window = 0 : i64}
  %3:2 = kern.attention %a, %a, %a starts %s : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8xi32>) -> (tensor<8x16xf32>, tensor<8x2xf32>) {head_dim = 8 : i64, seq = 4 : i64, scale = 1.0, window = 0 : i64}
  %4:3 = kern.attention_grad %a, %a, %a, %a, %a, %lse starts %s rope %t, %t : (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x2xf32>, tensor<8xi32>, tensor<4x4xf32>, tensor<4x4xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>, tensor<8x16xf32>) {head_dim = 8 : i64, seq = 4 : i64, scale = 1.0, window = 0 : i64}
  %5 = kern.scatter_add %s, %d : (tensor<8xi32>, tensor<8x4xf32>) -> tensor<5x4xf32>
  %6 = kern.scatter_add %s, %d acc %w : (tensor<8xi32>, tensor<8x4xf32>, tensor<5x4xf32>) -> tensor<5x4xf32>
  %7:4 = kern.route %l : (tensor<4x3xf32>) -> (tensor<4x2xf32>, tensor<4x2xi32>, tensor<3xf32>, tensor<3xf32>)
  %8 = kern.route_grad %l, %7#1, %7#0 : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4x2xf32>) -> tensor<4x3xf32>
  %9 = kern.route_grad %l, %7#1, %7#0 dmass %7#3 : (tensor<4x3xf32>, tensor<4x2xi32>, tensor<4x2xf32>, tensor<3xf32>) -> tensor<4x3xf32> {normalize}
  %10:3 = kern.sort_rows %7#1 : (tensor<4x2xi32>) -> (tensor<4xi32>, tensor<8xi32>, tensor<8xi32>)
  %11 = kern.take_rows %t, %s : (tensor<4x4xf32>, tensor<8xi32>) -> tensor<8x4xf32> {chosen = 2 : i64}
  %12 = kern.take_rows_grad %d, %s : (tensor<8x4xf32>, tensor<8xi32>) -> tensor<4x4xf32>
  %13 = kern.combine_rows %d, %7#0, %s : (tensor<8x4xf32>, tensor<4x2xf32>, tensor<8xi32>) -> tensor<4x4xf32>
  %14:2 = kern.combine_rows_grad %t, %d, %7#0, %s, %s : (tensor<4x4xf32>, tensor<8x4xf32>, tensor<4x2xf32>, tensor<8xi32>, tensor<8xi32>) -> (tensor<8x4xf32>, tensor<4x2xf32>)
  %15 = kern.expert_linear %d, %m, %o : (tensor<8x4xf32>, tensor<12x4xf32>, tensor<4xi32>) -> tensor<8x4xf32> {transposed}
  %16 = kern.expert_linear_grad %d, %d, %o : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xi32>) -> tensor<12x4xf32>
  %17 = kern.expert_linear_grad %d, %d, %o acc %m : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<4xi32>, tensor<12x4xf32>) -> tensor<12x4xf32>
  %18 = kern.expert_swiglu %a, %o : (tensor<8x16xf32>, tensor<4xi32>) -> tensor<8x8xf32>
  %19 = kern.expert_swiglu_grad %18, %a, %o : (tensor<8x8xf32>, tensor<8x16xf32>, tensor<4xi32>) -> tensor<8x16xf32>
  %20:2 = kern.linear_swiglu %a, %a : (tensor<8x16xf32>, tensor<8x16xf32>) -> (tensor<8x8xf32>, tensor<8x4xf32>)
  %21:2 = kern.swiglu_linear_grad %d, %t, %20#0 : (tensor<8x4xf32>, tensor<4x4xf32>, tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x4xf32>)
  return
}
)";

// Returns the names of the operands that `op` reads, or of its results. A star marks an operand
// that may lie in spaced runs. The accumulator of an op on tensors is left out.
std::vector<std::string> names(CommandOpInterface op, bool areResults) {
  std::vector<std::string> names;
  for (const CommandOperand &operand : op.getCommandOperands()) {
    const bool isSlice = isa<plan_ir::SliceType>(operand.value.getType());
    const bool isResult = operand.role == CommandRole::Write ||
                          (operand.role == CommandRole::Accumulate && isSlice);
    if (areResults ? isResult : operand.role == CommandRole::Read)
      names.push_back(operand.name.str() + (operand.mayBeSpaced ? "*" : ""));
  }
  return names;
}

} // namespace

TEST(CommandOpInterface, AnOpAndItsCommandAgree) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.loadDialect<plan_ir::PlanDialect>();
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(kOps, &context);
  ASSERT_TRUE(module);
  int commands = 0;
  for (Operation &op :
       llvm::make_early_inc_range((*module->getOps<func::FuncOp>().begin()).getBody().front())) {
    auto planned = dyn_cast<PlannedOpInterface>(op);
    if (!planned)
      continue;
    OpBuilder b(&op);
    auto sliceOf = [&](Value value) -> Value {
      if (!value)
        return {};
      return plan_ir::VariableRefOp::create(
          b, op.getLoc(),
          plan_ir::SliceType::get(&context, cast<RankedTensorType>(value.getType())), "v", 0, 1, 0);
    };
    planned.createCommand(b, sliceOf, /*scratch=*/Value());
    auto source = cast<CommandOpInterface>(op);
    auto command = cast<CommandOpInterface>(op.getPrevNode());
    EXPECT_EQ(source.getCommandName(), command.getCommandName());
    EXPECT_EQ(names(source, false), names(command, false));
    EXPECT_EQ(names(source, true), names(command, true));
    EXPECT_EQ(bool(source.getAccumulated()), bool(command.getAccumulated()));
    EXPECT_FALSE(command.getScratch());
    ++commands;
  }
  EXPECT_EQ(commands, 22);
}
