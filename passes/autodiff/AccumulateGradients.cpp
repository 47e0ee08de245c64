// lm-accumulate-gradients: replaces @micro by up to three functions: for the first micro-step of an
// optimizer step, for the middle ones, and for the last one. Passes.td shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/interfaces/Differentiable.h"
#include "dialects/lm/Lm.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/MapVector.h"

namespace lmc {
#define GEN_PASS_DEF_ACCUMULATEGRADIENTSPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// This name is temporary. The function is renamed to @micro when the old @micro is erased.
static constexpr StringRef kMiddle = "micro_middle";

namespace {

Value addedTo(OpBuilder &b, Value accumulator, Value contribution, bool backward) {
  return lm::AddOp::create(b, contribution.getLoc(), accumulator, contribution, backward);
}

// Returns the op that computes `contribution` if it can add its result to an accumulator, else
// null. If several ops add up `contribution`, returns the first of them.
AccumulatingOpInterface accumulatingProducer(Value contribution) {
  auto producer = dyn_cast_if_present<AccumulatingOpInterface>(contribution.getDefiningOp());
  if (!producer || producer.getAccumulated() != contribution || !contribution.hasOneUse())
    return {};
  return producer.getAccumulator() ? accumulatingProducer(producer.getAccumulator()) : producer;
}

class Accumulator {
public:
  Accumulator(func::FuncOp function, SymbolTable &symbols, llvm::StringMap<func::FuncOp> &variants)
      : function(function), symbols(symbols), variants(variants), b(function.getContext()) {}

  // Replaces every lm.accumulate. With `storeFirst`, the first contribution to a variable
  // overwrites the variable; all others are added.
  void run(bool storeFirst) {
    Block &body = function.getBody().front();
    llvm::StringMap<unsigned> contributions; // count of contributions not yet added, per variable
    for (auto op : body.getOps<lm::AccumulateOp>())
      ++contributions[op.getVariable()];

    // Maps each call of a backward half to those of its results that are all that their main
    // gradients get. A variant of the half will add these itself. Forward halves have no variants,
    // because all micro-steps must call the same ones (LayerHalves.h).
    llvm::MapVector<Operation *, llvm::SmallVector<lm::AccumulateOp>> calls;
    for (auto op : body.getOps<lm::AccumulateOp>())
      if (auto call = op.getValue().getDefiningOp<func::CallOp>();
          !storeFirst && call && !call.getCallee().ends_with(".forward") &&
          op.getValue().hasOneUse() && contributions[op.getVariable()] == 1)
        calls[call].push_back(op);
    for (auto &[operation, ops] : calls) {
      auto call = cast<func::CallOp>(operation);
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      llvm::sort(ops, [](lm::AccumulateOp a, lm::AccumulateOp b) {
        return cast<OpResult>(a.getValue()).getResultNumber() <
               cast<OpResult>(b.getValue()).getResultNumber();
      });
      SmallVector<int64_t> indices;
      for (lm::AccumulateOp op : ops)
        indices.push_back(cast<OpResult>(op.getValue()).getResultNumber());
      auto marked = callee->getAttrOfType<DenseI64ArrayAttr>("lm.accumulated");
      if (marked && marked.asArrayRef() != ArrayRef<int64_t>(indices))
        continue; // this call cannot use the half's variant, which adds a different list of results
      callee->setAttr("lm.accumulated", b.getDenseI64ArrayAttr(indices));
      SmallVector<Value> operands(call.getOperands());
      b.setInsertionPoint(call);
      for (lm::AccumulateOp op : ops)
        operands.push_back(
            lm::LoadOp::create(b, op.getLoc(), op.getValue().getType(), op.getVariable()));
      auto accumulating = lm::createCallLike(b, call, accumulatingVariant(callee), operands);
      call.replaceAllUsesWith(accumulating.getResults());
      call.erase();
      for (lm::AccumulateOp op : ops) {
        b.setInsertionPoint(op);
        lm::StoreOp::create(b, op.getLoc(), op.getValue(), op.getVariable());
        op.erase();
      }
    }

    llvm::StringMap<Value> current; // the sum of each variable so far
    for (auto op : llvm::make_early_inc_range(body.getOps<lm::AccumulateOp>())) {
      Value &sum = current[op.getVariable()];
      Value contribution = op.getValue();
      if (!sum && !storeFirst) {
        b.setInsertionPointToStart(&body);
        sum = lm::LoadOp::create(b, op.getLoc(), contribution.getType(), op.getVariable());
      }
      sum = sum ? addTo(contribution, sum, op) : contribution;
      if (--contributions[op.getVariable()] == 0) {
        b.setInsertionPoint(op);
        lm::StoreOp::create(b, op.getLoc(), sum, op.getVariable());
      }
      op.erase();
    }
  }

private:
  // Returns accumulator + contribution. The op that computes the contribution also adds it if it
  // can. Otherwise a new op before `before` adds it.
  Value addTo(Value contribution, Value accumulator, lm::AccumulateOp before) {
    AccumulatingOpInterface producer = accumulatingProducer(contribution);
    if (producer && accumulator.getDefiningOp()->isBeforeInBlock(producer)) {
      producer.setAccumulator(accumulator);
      return contribution;
    }
    b.setInsertionPoint(before);
    return addedTo(b, accumulator, contribution, before.getBackward());
  }

  // Returns a copy of `callee`, a layer's backward half, that adds to accumulators. For each result
  // in the list `lm.accumulated`, the copy takes an accumulator and returns accumulator + result.
  func::FuncOp accumulatingVariant(func::FuncOp callee) {
    func::FuncOp &variant = variants[callee.getSymName()];
    if (variant)
      return variant;
    OpBuilder::InsertionGuard guard(b);
    variant = lm::cloneAs(b, callee, callee.getSymName() + ".accumulate", symbols);
    auto accumulated = callee->getAttrOfType<DenseI64ArrayAttr>("lm.accumulated");
    Block &body = variant.getBody().front();
    auto ret = cast<func::ReturnOp>(body.getTerminator());
    for (int64_t index : accumulated.asArrayRef()) {
      OpOperand &result = ret->getOpOperand(unsigned(index));
      Value contribution = result.get();
      Value accumulator = body.addArgument(contribution.getType(), contribution.getLoc());
      if (AccumulatingOpInterface producer = accumulatingProducer(contribution)) {
        producer.setAccumulator(accumulator);
        continue;
      }
      b.setInsertionPoint(ret);
      result.set(addedTo(b, accumulator, contribution, /*backward=*/true));
    }
    variant.setFunctionType(
        b.getFunctionType(body.getArgumentTypes(), callee.getFunctionType().getResults()));
    return variant;
  }

  func::FuncOp function;
  SymbolTable &symbols;
  llvm::StringMap<func::FuncOp> &variants;
  OpBuilder b;
};

struct AccumulateGradientsPass
    : lmc::impl::AccumulateGradientsPassBase<AccumulateGradientsPass> {
  using AccumulateGradientsPassBase::AccumulateGradientsPassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    auto micro = symbols.lookup<func::FuncOp>(names::kMicro);
    if (!micro) {
      module.emitOpError("has no @micro; run lm-autodiff first");
      return signalPassFailure();
    }
    if (steps < 1) {
      module.emitOpError("needs at least one gradient accumulation step, got ") << int64_t(steps);
      return signalPassFailure();
    }
    OpBuilder b(module);
    llvm::StringMap<func::FuncOp> variants;
    auto make = [&](StringRef name, bool storeFirst) {
      Accumulator(lm::cloneAs(b, micro, name, symbols), symbols, variants).run(storeFirst);
    };
    if (steps > 1)
      make(names::kMicroLast, false);
    if (steps > 2)
      make(kMiddle, false);
    make(names::kMicroFirst, true);
    symbols.erase(micro);
    if (auto middle = symbols.lookup<func::FuncOp>(kMiddle))
      middle.setSymName(names::kMicro);
    for (auto function : module.getOps<func::FuncOp>())
      function->removeAttr("lm.accumulated");
  }
};
} // namespace
