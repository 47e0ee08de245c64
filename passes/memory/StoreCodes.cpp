// lm-store-codes: keeps values for the backward pass as 8-bit floats. Passes.td shows an example.
#include "passes/memory/Passes.h"

#include "dialects/lm/Lm.h"
#include "dialects/lm/TensorTypes.h"
#include "passes/memory/LayerHalves.h"
#include "passes/memory/OpCost.h"

namespace lmc {
#define GEN_PASS_DEF_STORECODESPASS
#include "passes/memory/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

class CodeStorer {
public:
  CodeStorer(func::FuncOp forward, unsigned layerResults)
      : body(forward.getBody().front()), b(forward.getContext()), layerResults(layerResults) {
    for (Value result : body.getTerminator()->getOperands().take_front(layerResults))
      atHand.insert(viewedValue(result));
  }

  void run() {
    for (OpOperand &kept : body.getTerminator()->getOpOperands().drop_front(layerResults))
      kept.set(stored(kept.get()));
    // The gradient of attention makes its probabilities from q, k and lse, so that their sum is 1
    // only if lse was computed from the same q and k.
    for (auto attention : body.getOps<lm::AttentionOp>())
      for (OpOperand *operand :
           {&attention.getQMutable(), &attention.getKMutable(), &attention.getVMutable()})
        operand->set(stored(operand->get()));
  }

  unsigned numStored = 0;

private:
  // Returns the value that the backward pass reads in the place of `value`.
  Value stored(Value value) {
    if (Value known = done.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (!op || atHand.contains(viewedValue(value)))
      return value;
    Operation *source = viewedValue(value).getDefiningOp();
    if (source && !isFreeToRecompute(source) && isStorable(value, source))
      return rounded(value);
    if (!isFreeToRecompute(op))
      return value;
    auto operands =
        llvm::map_to_vector(op->getOperands(), [&](Value each) { return stored(each); });
    if (Value known = done.lookup(value)) // the codes of an operand
      return known;
    if (llvm::equal(operands, op->getOperands()))
      return value;
    b.setInsertionPointAfter(op);
    Operation *again = b.clone(*op);
    again->setOperands(operands);
    for (auto [result, remade] : llvm::zip_equal(op->getResults(), again->getResults()))
      done[result] = remade;
    return done[value];
  }

  // Returns true if `value`, the result of `source` or a view of it, may be rounded.
  static bool isStorable(Value value, Operation *source) {
    if (!isa<lm::LinearOp, lm::MatmulOp, lm::ScaledMatmulOp, lm::RopeOp, lm::AttentionOp, lm::AddOp,
             lm::TakeRowsOp, lm::ExpertLinearOp, lm::ExpertScaledLinearOp>(source))
      return false;
    RankedTensorType type = tensorTypeOf(value);
    const Type element = tensorTypeOf(source->getResult(0)).getElementType();
    if (type.getRank() != 2 || type.getElementType() != element ||
        !(element.isBF16() || element.isF32()))
      return false;
    if (auto attention = dyn_cast<lm::AttentionOp>(source))
      return viewedValue(value) == attention.getResult();
    // Routers choose experts by small differences.
    return llvm::none_of(value.getUsers(),
                         [](Operation *reader) { return isa<lm::RouteOp>(reader); });
  }

  // Returns `value`, rounded. A product may have cast it already.
  Value rounded(Value value) {
    ++numStored;
    lm::Quantized made;
    for (Operation *reader : value.getUsers())
      if (auto cast = dyn_cast<lm::QuantizeOp>(reader);
          cast && isa<Float8E4M3FNType>(tensorTypeOf(cast.getResult()).getElementType())) {
        made = {cast.getResult(), cast.getScale()};
        done[cast.getResult()] = cast.getResult();
        b.setInsertionPointAfter(cast);
        break;
      }
    if (!made.codes) {
      b.setInsertionPointAfterValue(value);
      RankedTensorType type = tensorTypeOf(value);
      auto cast = lm::QuantizeWholeRowsOp::create(
          b, value.getLoc(), type.clone(Float8E4M3FNType::get(b.getContext())),
          RankedTensorType::get(type.getDimSize(0), b.getF32Type()), value);
      made = {cast.getCodes(), cast.getScales()};
    }
    return done[value] =
               lm::DequantizeOp::create(b, value.getLoc(), value.getType(), made.codes, made.scale);
  }

  Block &body;
  OpBuilder b;
  unsigned layerResults;
  llvm::SmallPtrSet<Value, 4> atHand; // what the neighbouring layers keep
  llvm::DenseMap<Value, Value> done;
};

struct StoreCodesPass : lmc::impl::StoreCodesPassBase<StoreCodesPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    for (auto forward : module.getOps<func::FuncOp>())
      if (func::FuncOp layer = layerOf(forward, symbols); layer && !forward.isExternal()) {
        CodeStorer storer(forward, layer.getNumResults());
        storer.run();
        numStored += storer.numStored;
      }
  }
};
} // namespace
