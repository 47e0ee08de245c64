// lm-fold-swiglu: merges a matrix product with the SwiGLU of the halves g and u of its result. In
// the backward pass, merges a product with the gradient of SwiGLU.
//
//   %gu = lm.linear %x, %w                       %gu, %a = lm.linear_swiglu %x, %w
//   %g, %u = lm.split %gu                  =>
//   %a = lm.swiglu %g, %u
//
//   %d = lm.matmul %dy, %w                       %dgu, %a = lm.swiglu_linear_grad %dy, %w, %gu
//   %g, %u = lm.split %gu                  =>
//   %a = lm.swiglu %g, %u (if there is one)
//   %dg, %du = lm.swiglu_grad %d, %g, %u
//   %dgu = lm.join %dg, %du
//
// One command computes the new op, so a device may keep g, u and d in registers. The command takes
// g and u as one matrix. Therefore, if the forward half of a layer returned g and u, it now returns
// %gu, and the backward half splits %gu.
#include "passes/fusion/Halves.h"
#include "passes/fusion/Passes.h"

#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dominance.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_FOLDSWIGLUPASS
#include "passes/fusion/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Returns true if the matrix is in bf16 and its rows are multiples of 16 bytes.
static bool isTiled(Value matrix) {
  auto type = cast<RankedTensorType>(matrix.getType());
  return type.getElementType().isBF16() && type.getDimSize(1) % 8 == 0;
}

static void eraseUnused(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (op && op->use_empty())
      op->erase();
}

// Tries to merge `grad` and the product before it. Returns true if this succeeds.
static bool fold(lm::SwigluGradOp grad) {
  auto product = grad.getDy().getDefiningOp<lm::MatmulOp>();
  lm::SplitOp split = halvesOf(grad.getGate(), grad.getUp());
  lm::JoinOp join = joinOf(grad.getDgate(), grad.getDup());
  if (!product || !split || !join || !product->hasOneUse() || product.getAcc() ||
      product.getTransposeA() || product.getTransposeB() || !split.getX().hasOneUse() ||
      !llvm::all_of(ValueRange{product.getA(), product.getB(), split.getX()}, isTiled))
    return false;
  // The gradients overwrite g and u, so no other op may read g or u.
  lm::SwigluOp activation;
  for (Operation *reader : split->getUsers()) {
    auto swiglu = dyn_cast<lm::SwigluOp>(reader);
    if (reader == grad || (swiglu && swiglu == activation))
      continue;
    if (activation || !swiglu || swiglu.getGate() != grad.getGate() ||
        swiglu.getUp() != grad.getUp())
      return false;
    activation = swiglu;
  }
  Operation *first = join; // the first op that reads a result of the merged op
  if (activation)
    for (Operation *reader : activation->getUsers()) {
      if (reader->getBlock() != first->getBlock())
        return false;
      if (reader->isBeforeInBlock(first))
        first = reader;
    }
  DominanceInfo dominance;
  if (!llvm::all_of(ValueRange{product.getA(), product.getB(), split.getX()},
                    [&](Value read) { return dominance.properlyDominates(read, first); }))
    return false;
  OpBuilder b(first);
  auto type = cast<RankedTensorType>(grad.getDgate().getType());
  auto made =
      lm::SwigluLinearGradOp::create(b, product.getLoc(), join.getType(), type, product.getA(),
                                     product.getB(), split.getX(), bool(activation));
  setStep(made, grad);
  join.getResult().replaceAllUsesWith(made.getDgu());
  if (activation)
    activation.getResult().replaceAllUsesWith(made.getA());
  eraseUnused({join, grad, activation, split, product});
  return true;
}

// Tries to merge `swiglu` and the linear layer before it. Returns true if this succeeds.
static bool fold(lm::SwigluOp swiglu) {
  lm::SplitOp split = halvesOf(swiglu.getGate(), swiglu.getUp());
  auto linear = split ? split.getX().getDefiningOp<lm::LinearOp>() : lm::LinearOp();
  if (!linear || linear.getBias() || linear.getResidual() || linear.getTransposed() ||
      linear->getBlock() != swiglu->getBlock() ||
      !llvm::all_of(ValueRange{linear.getX(), linear.getWeight(), swiglu.getResult()}, isTiled))
    return false;
  auto readsOnlyHalves = [&](Operation *reader) { return reader == swiglu; };
  const bool both = !linear->hasOneUse() || !llvm::all_of(split->getUsers(), readsOnlyHalves);
  OpBuilder b(linear);
  auto made = lm::LinearSwigluOp::create(b, linear.getLoc(), linear.getType(), swiglu.getType(),
                                         linear.getX(), linear.getWeight(), both);
  setStep(made, linear);
  linear.getResult().replaceAllUsesWith(made.getGu());
  swiglu.getResult().replaceAllUsesWith(made.getA());
  eraseUnused({swiglu, split, linear});
  return true;
}

//===-- Functions that pass halves ----------------------------------------------------------===//

using Calls = llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>>;

// Returns the calls of each private function.
static Calls callsOf(ModuleOp module) {
  Calls calls;
  const SymbolTable symbols(module);
  module.walk([&](func::CallOp call) {
    auto function = symbols.lookup<func::FuncOp>(call.getCallee());
    if (function && function.isPrivate() && !function.isExternal())
      calls[function].push_back(call);
  });
  return calls;
}

// If `function` returns both halves that an lm.swiglu reads, makes it return their matrix instead.
static void returnWhole(func::FuncOp function, SmallVector<func::CallOp> &calls) {
  Operation *end = function.getBody().back().getTerminator();
  for (auto swiglu : llvm::to_vector(function.getOps<lm::SwigluOp>())) {
    lm::SplitOp split = halvesOf(swiglu.getGate(), swiglu.getUp());
    if (!split)
      continue;
    SmallVector<Value> returned(end->getOperands());
    if (!llvm::is_contained(returned, swiglu.getGate()) ||
        !llvm::is_contained(returned, swiglu.getUp()))
      continue;
    auto isHalf = [&](Value value) { return value == swiglu.getGate() || value == swiglu.getUp(); };
    for (unsigned i = end->getNumOperands(); i-- > 0;)
      if (isHalf(returned[i]))
        end->eraseOperand(i);
    end->insertOperands(end->getNumOperands(), split.getX());
    function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(),
                                       end->getOperandTypes()));
    for (func::CallOp &call : calls) {
      OpBuilder b(call);
      func::CallOp made = lm::createCallLike(b, call, function, call.getOperands());
      auto cut =
          lm::SplitOp::create(b, split.getLoc(), split.getResultTypes(), made.getResults().back());
      unsigned next = 0;
      for (auto [value, result] : llvm::zip_equal(returned, call.getResults()))
        result.replaceAllUsesWith(isHalf(value) ? cut.getResult(value == swiglu.getUp())
                                                : made.getResult(next++));
      call.erase();
      call = made;
    }
  }
}

// An lm.swiglu_grad reads two halves. If both are arguments of `function`, and each call passes the
// halves of one matrix for them, makes the function take the matrix instead.
static void takeWhole(func::FuncOp function, SmallVector<func::CallOp> &calls) {
  for (auto grad : llvm::to_vector(function.getOps<lm::SwigluGradOp>())) {
    auto gate = dyn_cast<BlockArgument>(grad.getGate()), up = dyn_cast<BlockArgument>(grad.getUp());
    if (!gate || !up || calls.empty())
      continue;
    SmallVector<lm::SplitOp> splits; // of each call
    for (func::CallOp call : calls)
      splits.push_back(
          halvesOf(call.getOperand(gate.getArgNumber()), call.getOperand(up.getArgNumber())));
    if (llvm::is_contained(splits, lm::SplitOp()))
      continue;
    llvm::BitVector halves(function.getNumArguments());
    OpBuilder b(function.getContext());
    b.setInsertionPointToStart(&function.getBody().front());
    BlockArgument whole =
        function.getBody().addArgument(splits.front().getX().getType(), function.getLoc());
    auto cut =
        lm::SplitOp::create(b, splits.front().getLoc(), splits.front().getResultTypes(), whole);
    cut.setBackward(true);
    for (unsigned i = 0; i < halves.size(); ++i)
      for (unsigned half : {0u, 1u})
        if (llvm::all_of(llvm::zip(calls, splits), [&](auto each) {
              return std::get<0>(each).getOperand(i) == std::get<1>(each).getResult(half);
            })) {
          function.getArgument(i).replaceAllUsesWith(cut.getResult(half));
          halves.set(i);
        }
    llvm::BitVector erased = halves;
    erased.resize(function.getBody().getNumArguments());
    function.getBody().front().eraseArguments(erased);
    function.setType(FunctionType::get(function.getContext(), function.getBody().getArgumentTypes(),
                                       function.getResultTypes()));
    for (auto [call, split] : llvm::zip(calls, splits)) {
      SmallVector<Value> operands;
      for (auto [i, operand] : llvm::enumerate(call.getOperands()))
        if (!halves[unsigned(i)])
          operands.push_back(operand);
      operands.push_back(split.getX());
      b.setInsertionPoint(call);
      func::CallOp made = lm::createCallLike(b, call, function, operands);
      call.replaceAllUsesWith(made.getResults());
      call.erase();
      call = made;
    }
    for (lm::SplitOp split : llvm::SmallSetVector<lm::SplitOp, 8>(splits.begin(), splits.end()))
      if (split->use_empty())
        split.erase();
  }
}

namespace {
struct FoldSwigluPass : lmc::impl::FoldSwigluPassBase<FoldSwigluPass> {
  void runOnOperation() override {
    Calls calls = callsOf(getOperation());
    for (auto &[function, of] : calls)
      returnWhole(function, of);
    calls = callsOf(getOperation());
    for (auto &[function, of] : calls)
      takeWhole(function, of);
    // Each lm.swiglu_grad is merged first, because this merge may include an lm.swiglu that the
    // backward pass recomputes. That lm.swiglu must not be merged with a linear layer before.
    foldAll<lm::SwigluGradOp>();
    foldAll<lm::SwigluOp>();
  }
  template <typename Op> void foldAll() {
    SmallVector<Op> ops;
    getOperation().walk([&](Op op) { ops.push_back(op); });
    for (Op op : ops)
      if (fold(op))
        ++numFolded;
  }
};
} // namespace
