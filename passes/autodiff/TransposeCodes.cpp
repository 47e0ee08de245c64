// lm-transpose-codes: transposes factors of products of 8-bit floats, so that their rows run along
// the dimension that is summed over. Passes.td shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/interfaces/LocationName.h"
#include "dialects/interfaces/Step.h"
#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/SetVector.h"

namespace lmc {
#define GEN_PASS_DEF_TRANSPOSECODESPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// Extents of the products of tensor cores, and of their rows in bytes, are multiples of this
// number.
static constexpr int64_t kMultiple = 16;

namespace {

class CodeTransposer {
public:
  explicit CodeTransposer(ModuleOp module)
      : module(module), symbols(module), b(module.getContext()) {
    module.walk([&](func::CallOp call) {
      if (auto callee = symbols.lookup<func::FuncOp>(call.getCallee()))
        calls[callee].push_back(call);
    });
  }

  LogicalResult run() {
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal())
        keepTransposes(function);
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && failed(rewrite(function)))
        return failure();
    return success();
  }

  unsigned numTransposed = 0;

private:
  // `forward` may return codes of a cast. If all that its callers do with them is to pass them to
  // functions that need the transpose, makes it return the transpose: this takes as many bytes, and
  // one kernel can make both.
  void keepTransposes(func::FuncOp forward) {
    auto result = cast<func::ReturnOp>(forward.getBody().front().getTerminator());
    for (OpOperand &codes : result->getOpOperands()) {
      if (!codes.get().getDefiningOp<lm::QuantizeOp>())
        continue;
      llvm::SetVector<BlockArgument> readers = readersOf(forward, codes.getOperandNumber());
      if (readers.empty() || !llvm::all_of(readers, needsTranspose))
        continue;
      RankedTensorType type = typeOf(codes.get());
      codes.set(transposed(codes.get(), codes.get().getDefiningOp()));
      for (func::CallOp call : calls[forward])
        call.getResult(codes.getOperandNumber()).setType(type);
      for (BlockArgument reader : readers) {
        reader.setType(type);
        done[reader] = reader;
        updateType(cast<func::FuncOp>(reader.getOwner()->getParentOp()));
      }
      updateType(forward);
    }
  }

  // Returns the arguments of functions which get the result with this number of `function`. Returns
  // none if anything else reads it, or if an argument gets something else, too.
  llvm::SetVector<BlockArgument> readersOf(func::FuncOp function, unsigned number) {
    llvm::SetVector<BlockArgument> readers;
    for (func::CallOp call : calls[function])
      for (OpOperand &use : call.getResult(number).getUses()) {
        auto reader = dyn_cast<func::CallOp>(use.getOwner());
        auto callee = reader ? symbols.lookup<func::FuncOp>(reader.getCallee()) : func::FuncOp();
        if (!callee || callee.isExternal())
          return {};
        readers.insert(callee.getArgument(use.getOperandNumber()));
      }
    for (BlockArgument reader : readers)
      for (func::CallOp call : calls[cast<func::FuncOp>(reader.getOwner()->getParentOp())]) {
        auto given = dyn_cast<OpResult>(call.getOperand(reader.getArgNumber()));
        auto maker = given ? dyn_cast<func::CallOp>(given.getOwner()) : func::CallOp();
        if (!maker || maker.getCallee() != function.getSymName() ||
            given.getResultNumber() != number)
          return {};
      }
    return readers;
  }

  // Returns true if products of matrices read `codes`, and all need the transpose.
  static bool needsTranspose(Value codes) {
    return !codes.use_empty() && llvm::all_of(codes.getUses(), [](OpOperand &use) {
      auto product = dyn_cast<lm::ScaledMatmulOp>(use.getOwner());
      return product && ((&use == &product.getAMutable() && product.getTransposeA()) ||
                         (&use == &product.getBMutable() && !product.getTransposeB()));
    });
  }

  void updateType(func::FuncOp function) {
    Block &body = function.getBody().front();
    function.setFunctionType(
        b.getFunctionType(body.getArgumentTypes(), body.getTerminator()->getOperandTypes()));
  }

  LogicalResult rewrite(func::FuncOp function) {
    Block &body = function.getBody().front();
    SmallVector<lm::ScaledMatmulOp> products(body.getOps<lm::ScaledMatmulOp>());
    for (lm::ScaledMatmulOp product : products) {
      for (OpOperand *factor : {&product.getAMutable(), &product.getBMutable()})
        for (int64_t extent : tensorTypeOf(factor->get()).getShape())
          if (extent % kMultiple != 0)
            return product.emitError("the matrix product of ")
                   << nameOf(product.getLoc()) << " has a factor " << factor->get().getType()
                   << ", and tensor cores need multiples of " << kMultiple
                   << "; change training.micro_batch_size or training.sequence_length, or set "
                      "training.fp8 to \"none\"";
      if (product.getTransposeA()) {
        product.getAMutable().assign(transposed(product.getA(), product));
        product.setTransposeA(false);
      }
      if (product.getTransposeB())
        continue;
      if (product.getTiles())
        transposeTiles(product, product.getBMutable(), product.getScaleBMutable());
      else
        product.getBMutable().assign(transposed(product.getB(), product));
      product.setTransposeB(true);
    }
    SmallVector<lm::ExpertScaledLinearOp> experts(body.getOps<lm::ExpertScaledLinearOp>());
    for (lm::ExpertScaledLinearOp product : experts) {
      if (!product.getTransposed())
        continue;
      transposeTiles(product, product.getWeightMutable(), product.getWeightScalesMutable());
      product.setTransposed(false);
      product.setBeside(true);
    }
    eraseUnread(function);
    return success();
  }

  // Returns the transpose of `codes`, which `product` reads.
  Value transposed(Value codes, Operation *product) {
    return transposed<lm::TransposeOp>(codes, typeOf(codes), codes, product);
  }
  // Returns the transpose, of `type`, of `x`: of `codes` or of their scales.
  template <typename Op>
  Value transposed(Value x, RankedTensorType type, Value codes, Operation *product) {
    if (Value known = done.lookup(x))
      return known;
    ++numTransposed;
    auto make = [&](Value of, Operation *like) { // belongs to the same pass as `like`
      auto transpose = Op::create(b, of.getLoc(), type, of);
      setStep(transpose, like);
      return transpose.getResult();
    };
    auto argument = dyn_cast<BlockArgument>(x), ofCodes = dyn_cast<BlockArgument>(codes);
    if (!argument || !ofCodes || !isOfWeight(ofCodes)) {
      // The codes of an activation are needed only here.
      if (argument)
        b.setInsertionPoint(product);
      else
        b.setInsertionPointAfterValue(x);
      return done[x] = make(x, argument ? product : x.getDefiningOp());
    }
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    Value made = argument.getOwner()->addArgument(type, x.getLoc());
    done[x] = made;
    for (func::CallOp call : calls[function]) {
      Value given = call.getOperand(argument.getArgNumber());
      Value &ofCaller = done[given];
      if (!ofCaller) {
        b.setInsertionPointAfterValue(given);
        ofCaller = make(given, given.getDefiningOp());
      }
      call.getOperandsMutable().append(ofCaller);
    }
    return made;
  }

  // Makes a product read the transpose of a weight with scales of tiles: codes and scales of it.
  void transposeTiles(Operation *product, OpOperand &weight, OpOperand &scales) {
    RankedTensorType type = typeOf(weight.get());
    auto scalesType = RankedTensorType::get(
        lm::scalesOfTiles(type, /*padded=*/isa<lm::ScaledMatmulOp>(product)), b.getF32Type());
    const Value codes = weight.get();
    weight.set(transposed(codes, product));
    scales.set(transposed<lm::TransposeScalesOp>(scales.get(), scalesType, codes, product));
  }

  // Returns true if all callers pass codes that they make or load: those of a weight, which are
  // made once a step and not once a micro-step.
  bool isOfWeight(BlockArgument argument) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    ArrayRef<func::CallOp> callers = calls[function];
    return !callers.empty() && llvm::all_of(callers, [&](func::CallOp call) {
      return isa_and_nonnull<lm::QuantizeOp, lm::QuantizeTilesOp, lm::LoadOp>(
          call.getOperand(argument.getArgNumber()).getDefiningOp());
    });
  }

  // Erases codes that a function does not read any more.
  void eraseUnread(func::FuncOp function) {
    Block &body = function.getBody().front();
    llvm::BitVector unread(body.getNumArguments());
    for (BlockArgument argument : body.getArguments())
      if (argument.use_empty() && done.contains(argument)) {
        unread.set(argument.getArgNumber());
        done.erase(argument); // another value may get its address
      }
    for (func::CallOp call : calls[function])
      call->eraseOperands(unread);
    body.eraseArguments(unread);
    updateType(function);
  }

  RankedTensorType typeOf(Value codes) {
    RankedTensorType type = tensorTypeOf(codes);
    return type.clone(SmallVector<int64_t>{type.getDimSize(1), type.getDimSize(0)});
  }
  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  llvm::DenseMap<Operation *, SmallVector<func::CallOp>> calls; // of each function
  llvm::DenseMap<Value, Value> done; // codes and scales of tiles -> those of the transpose
};

struct TransposeCodesPass : lmc::impl::TransposeCodesPassBase<TransposeCodesPass> {
  void runOnOperation() override {
    CodeTransposer transposer(getOperation());
    if (failed(transposer.run()))
      return signalPassFailure();
    numTransposed += transposer.numTransposed;
  }
};
} // namespace
