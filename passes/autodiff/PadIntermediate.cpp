// lm-pad-intermediate: pads the inner size of MLPs with zeros to a multiple that suits tensor
// cores. Passes.td shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_PADINTERMEDIATEPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

class WidthPadder {
public:
  WidthPadder(ModuleOp module, int64_t multiple)
      : module(module), symbols(module), multiple(multiple) {}

  LogicalResult run() {
    SmallVector<lm::SwigluOp> found;
    module.walk([&](Operation *op) {
      if (auto swiglu = dyn_cast<lm::SwigluOp>(op))
        found.push_back(swiglu);
      else if (auto call = dyn_cast<func::CallOp>(op))
        calls[call.getCallee()].push_back(call);
    });
    for (lm::SwigluOp swiglu : found)
      if (failed(padMlp(swiglu)))
        return failure();
    return success();
  }

  unsigned numColumns = 0;

private:
  LogicalResult padMlp(lm::SwigluOp swiglu) {
    const int64_t width = tensorTypeOf(swiglu.getResult()).getDimSize(1);
    const int64_t size = int64_t(llvm::alignTo(uint64_t(width), uint64_t(multiple)));
    if (size == width)
      return success();
    if (swiglu.getGate().getDefiningOp<lm::SplitOp>())
      return success(); // gate and up of experts are halves of one product; experts are not padded
    auto gate = swiglu.getGate().getDefiningOp<lm::LinearOp>(),
         up = swiglu.getUp().getDefiningOp<lm::LinearOp>();
    auto down =
        swiglu->hasOneUse() ? dyn_cast<lm::LinearOp>(*swiglu->user_begin()) : lm::LinearOp();
    if (!gate || !up || !gate->hasOneUse() || !up->hasOneUse() || !down ||
        down.getX() != swiglu.getResult())
      return swiglu.emitOpError(
          "is not between linear layers, and lm-pad-intermediate does not know "
          "how to pad it");
    for (Operation *op : {gate.getOperation(), up.getOperation(), swiglu.getOperation()})
      op->getResult(0).setType(resized(tensorTypeOf(op->getResult(0)), 1, size));
    for (lm::LinearOp each : {gate, up}) {
      if (failed(padOperand(each.getWeightMutable(), 0, size)))
        return failure();
      for (OpOperand &bias : each.getBiasMutable())
        if (failed(padOperand(bias, 0, size)))
          return failure();
    }
    numColumns += unsigned(size - width);
    return padOperand(down.getWeightMutable(), 1, size);
  }

  LogicalResult padOperand(OpOperand &operand, unsigned dim, int64_t size) {
    auto argument = dyn_cast<BlockArgument>(operand.get());
    if (!argument)
      return padLoad(operand.get(), dim, size, operand.getOwner());
    auto layer = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    argument.setType(resized(tensorTypeOf(argument), dim, size));
    layer.setType(FunctionType::get(module.getContext(), layer.getBody().front().getArgumentTypes(),
                                    layer.getFunctionType().getResults()));
    for (func::CallOp call : calls.lookup(layer.getSymName()))
      if (failed(padLoad(call.getOperand(argument.getArgNumber()), dim, size, call)))
        return failure();
    return success();
  }

  // Pads the variable from which `weight` is loaded. Fails if `weight` has several readers.
  LogicalResult padLoad(Value weight, unsigned dim, int64_t size, Operation *reader) {
    auto load = weight.getDefiningOp<lm::LoadOp>();
    if (!load || !load->hasOneUse())
      return reader->emitOpError(
          "reads a weight of an MLP that no lm.load reads for this op alone, "
          "and lm-pad-intermediate does not know how to pad it");
    lm::VariableOp parameter = parameterOf(load, symbols);
    if (padded.insert(parameter).second && failed(padParameter(parameter, dim, size)))
      return failure();
    load.getResult().setType(resized(load.getType(), dim, size));
    return success();
  }

  ModuleOp module;
  SymbolTable symbols;
  const int64_t multiple;
  llvm::DenseMap<StringRef, SmallVector<func::CallOp>> calls; // key: name of the called function
  llvm::DenseSet<Operation *> padded;                         // the parameters that are padded
};

struct PadIntermediatePass : lmc::impl::PadIntermediatePassBase<PadIntermediatePass> {
  using PadIntermediatePassBase::PadIntermediatePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (multiple < 1) {
      module.emitError("needs a multiple of at least 1, not ") << multiple.getValue();
      return signalPassFailure();
    }
    WidthPadder padder(module, multiple);
    if (failed(padder.run()))
      return signalPassFailure();
    numColumns += padder.numColumns;
  }
};
} // namespace
