// lm-quantize-linears: casts the factors of layers' matrix products to 8-bit floats. Passes.td
// shows an example.
#include "passes/autodiff/Passes.h"

#include "dialects/interfaces/LocationName.h"
#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace lmc {
#define GEN_PASS_DEF_QUANTIZELINEARSPASS
#include "passes/autodiff/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

// The products of 8-bit floats of tensor cores need rows of 16 bytes.
static constexpr int64_t kMultiple = 16;

namespace {

class LinearQuantizer {
public:
  // With `blocks`, scales are those of blocks, else of tensors.
  LinearQuantizer(ModuleOp module, bool blocks)
      : module(module), symbols(module), b(module.getContext()), blocks(blocks) {}

  LogicalResult run() {
    llvm::MapVector<func::FuncOp, SmallVector<func::CallOp>> layers;
    module.walk([&](func::CallOp call) {
      if (auto layer = symbols.lookup<func::FuncOp>(call.getCallee()))
        layers[layer].push_back(call);
    });
    for (auto &[layer, calls] : layers)
      for (auto &[unquantized, same] : byWeights(layer, calls))
        if (failed(quantizeLayer(functionFor(layer, same, calls.size()), unquantized, same)))
          return failure();
    return success();
  }

  unsigned numQuantized = 0;

private:
  using Calls = SmallVector<func::CallOp>;

  // Returns the weight of a product that can be one of 8-bit floats, or null.
  Value weightOf(Operation *op) {
    if (auto linear = dyn_cast<lm::LinearOp>(op))
      return linear.getWeight();
    auto experts = dyn_cast<lm::ExpertLinearOp>(op);
    return experts && blocks ? experts.getWeight() : Value();
  }

  // Divides the calls of a layer by the weights that stay in the compute dtype: the key has the
  // numbers of their arguments.
  std::map<std::vector<unsigned>, Calls> byWeights(func::FuncOp layer,
                                                   ArrayRef<func::CallOp> calls) {
    std::map<std::vector<unsigned>, Calls> sets;
    for (func::CallOp call : calls) {
      std::vector<unsigned> unquantized;
      for (Operation &op : layer.getBody().front())
        if (auto weight = dyn_cast_or_null<BlockArgument>(weightOf(&op)))
          if (auto load = call.getOperand(weight.getArgNumber()).getDefiningOp<lm::LoadOp>();
              load && parameterOf(load, symbols).getUnquantized())
            unquantized.push_back(weight.getArgNumber());
      sets[unquantized].push_back(call);
    }
    return sets;
  }

  // Returns the function that `calls`, some of the `count` calls of `layer`, call from now on: a
  // copy, unless these are all that still call it.
  func::FuncOp functionFor(func::FuncOp layer, ArrayRef<func::CallOp> calls, size_t count) {
    size_t &left = callsLeft.try_emplace(layer, count).first->second;
    left -= calls.size();
    if (left == 0)
      return layer;
    const std::string name = (layer.getSymName() + ".copy" + Twine(++numCopies)).str();
    func::FuncOp copy = lm::cloneAs(b, layer, name, symbols);
    for (func::CallOp call : calls)
      call.setCallee(copy.getSymName());
    return copy;
  }

  LogicalResult quantizeLayer(func::FuncOp layer, ArrayRef<unsigned> unquantized,
                              ArrayRef<func::CallOp> calls) {
    llvm::DenseMap<Value, lm::Quantized> inputs;
    llvm::MapVector<unsigned, lm::Quantized> weights; // key: number of the weight's argument
    llvm::SmallDenseSet<unsigned> ofExperts;          // keys of weights of experts
    Block &body = layer.getBody().front();
    SmallVector<Operation *> products;
    for (Operation &op : body)
      if (weightOf(&op))
        products.push_back(&op);
    for (Operation *op : products) {
      auto weight = dyn_cast<BlockArgument>(weightOf(op));
      if (!weight)
        return op->emitOpError("has a weight that is no argument of its layer");
      if (llvm::is_contained(unquantized, weight.getArgNumber()))
        continue;
      if (failed(checkExtents(op, tensorTypeOf(weight))))
        return failure();
      Value input = op->getOperand(0);
      lm::Quantized &x = inputs[input];
      if (!x.codes) {
        b.setInsertionPointAfterValue(input);
        x = blocks ? lm::quantizeRows(b, op->getLoc(), input, forwardType())
                   : lm::quantize(b, op->getLoc(), input, forwardType());
      }
      auto linear = dyn_cast<lm::LinearOp>(op);
      lm::Quantized &w = weights[weight.getArgNumber()];
      if (!w.codes) {
        Location loc = weight.getLoc();
        w.codes = body.addArgument(tensorTypeOf(weight).clone(forwardType()), loc);
        w.scale = body.addArgument(scaleType(tensorTypeOf(weight), bool(linear)), loc);
        if (!linear)
          ofExperts.insert(weight.getArgNumber());
      }
      b.setInsertionPoint(op);
      Value product;
      if (linear) {
        product = lm::ScaledMatmulOp::create(
            b, op->getLoc(), linear.getType(), x.codes, w.codes, x.scale, w.scale, Value(),
            linear.getBias(), linear.getResidual(), /*transpose_a=*/false,
            /*transpose_b=*/!linear.getTransposed(), /*tiles=*/blocks,
            TypeAttr::get(blocks ? forwardType() : Float8E5M2Type::get(b.getContext())));
      } else {
        auto experts = cast<lm::ExpertLinearOp>(op);
        product = lm::ExpertScaledLinearOp::create(b, op->getLoc(), experts.getType(), x.codes,
                                                   w.codes, experts.getOffsets(), x.scale, w.scale,
                                                   experts.getTransposed(), /*beside=*/false);
      }
      op->getResult(0).replaceAllUsesWith(product);
      op->erase();
      ++numQuantized;
    }
    if (weights.empty())
      return success();
    llvm::BitVector unread(body.getNumArguments());
    for (auto &[argument, codes] : weights)
      if (body.getArgument(argument).use_empty())
        unread.set(argument);
    for (func::CallOp call : calls)
      if (failed(castWeights(call, weights, ofExperts, unread)))
        return failure();
    body.eraseArguments(unread);
    layer.setFunctionType(
        b.getFunctionType(body.getArgumentTypes(), layer.getFunctionType().getResults()));
    return success();
  }

  // Checks that a product can be one of 8-bit floats.
  LogicalResult checkExtents(Operation *op, RankedTensorType weight) {
    const int64_t multiple = blocks ? lm::kScaleBlock : kMultiple;
    SmallVector<int64_t> extents(weight.getShape());
    auto experts = dyn_cast<lm::ExpertLinearOp>(op);
    if (experts) // the matrices of experts are one below the other
      extents[0] /= tensorTypeOf(experts.getOffsets()).getDimSize(0) - 1;
    for (int64_t extent : extents)
      if (extent % multiple != 0) {
        InFlightDiagnostic error = op->emitError("the weight of ")
                                   << nameOf(op->getLoc()) << " is ";
        if (experts)
          error << extents[0] << " x " << extents[1] << " for each expert";
        else
          error << weight;
        return error << ", and products of 8-bit floats " << (blocks ? "in blocks " : "")
                     << "need multiples of " << multiple
                     << "; pad the model, or name the weight in training.fp8_filter"
                     << (blocks ? ", or set training.fp8 to \"tensor\"" : "");
      }
    const int64_t rows = tensorTypeOf(op->getOperand(0)).getDimSize(0);
    if (blocks && !experts && rows % multiple != 0)
      return op->emitError("the input of ")
             << nameOf(op->getLoc()) << " has " << rows << " rows, and blocks need multiples of "
             << multiple
             << "; change training.micro_batch_size or training.sequence_length, or set "
                "training.fp8 to \"tensor\"";
    return success();
  }

  // Gives a call the codes and scales of its weights.
  LogicalResult castWeights(func::CallOp call,
                            const llvm::MapVector<unsigned, lm::Quantized> &weights,
                            const llvm::SmallDenseSet<unsigned> &ofExperts,
                            const llvm::BitVector &unread) {
    SmallVector<Value> operands(call.getOperands());
    b.setInsertionPoint(call);
    for (auto &[argument, codes] : weights) {
      Value weight = operands[argument];
      auto load = weight.getDefiningOp<lm::LoadOp>();
      if (!load)
        return call.emitOpError("passes a weight that no lm.load reads");
      const lm::Quantized cast = blocks
                                     ? lm::quantizeTiles(b, load.getLoc(), weight, forwardType(),
                                                         /*padded=*/!ofExperts.contains(argument))
                                     : lm::quantize(b, load.getLoc(), weight, forwardType());
      operands.push_back(cast.codes);
      operands.push_back(cast.scale);
    }
    SmallVector<Value> read;
    for (auto [index, operand] : llvm::enumerate(operands))
      if (!unread.test(unsigned(index)))
        read.push_back(operand);
    call->setOperands(read);
    return success();
  }

  // Returns the type of the scales of a weight.
  RankedTensorType scaleType(RankedTensorType weight, bool padded) {
    return RankedTensorType::get(
        blocks ? lm::scalesOfTiles(weight, padded) : SmallVector<int64_t>{}, b.getF32Type());
  }
  Type forwardType() { return Float8E4M3FNType::get(b.getContext()); }

  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  llvm::DenseMap<Operation *, size_t> callsLeft; // of each layer: those that call the original
  unsigned numCopies = 0;
  bool blocks;
};

struct QuantizeLinearsPass : lmc::impl::QuantizeLinearsPassBase<QuantizeLinearsPass> {
  using QuantizeLinearsPassBase::QuantizeLinearsPassBase;
  void runOnOperation() override {
    LinearQuantizer quantizer(getOperation(), blocks);
    if (failed(quantizer.run()))
      return signalPassFailure();
    numQuantized += quantizer.numQuantized;
  }
};
} // namespace
