// Turns each kern.kernel into a vectorised function on raw pointers (Passes.td).
//
// A value is computed at a *point*, which maps the loop indices of the domain to the indices of the
// value. Evaluation recurses through the linalg.generics down to loads of the inputs. The loop
// dimensions along which a value varies decide where its code is placed:
//                     without column reductions                      in column reductions
//   none              before all loops                               before all loops
//   outer dimensions  before the loop along the innermost dimension  in the loop over rows
//   innermost         in the loop along the innermost dimension      before the loop over rows
//   both              in the innermost loop                          in the loop over rows
// In a column reduction, the loop over columns contains the loop over rows. An iteration processes
// several vectors of columns. It computes a value of outer dimensions once per row for all of them.
//
// In each iteration all loads come before all stores. So a result may overwrite an input that the
// kernel reads only at the points at which it writes the result.

#include "compiler/kernels/Hero.h"
#include "compiler/kernels/MathFunctions.h"
#include "compiler/targets/cpu/Passes.h"
#include "compiler/targets/cpu/ScalarMath.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Affine/Utils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace lmc::codegen {

#define GEN_PASS_DEF_LOWERKERNELSPASS
#include "compiler/targets/cpu/Passes.h.inc"

namespace {

// The number of rows in a block of a column reduction. The sums of all blocks are added at the end.
// So the rounding error for r rows grows with 64 + r / 64 instead of r.
constexpr int64_t kRowBlock = 64;

// A value that varies along the innermost dimension is a vector in vector loops and a scalar in
// scalar loops.
struct Val {
  Value value;
  bool innermost = false;
  bool outer = false;
};

using Cache = DenseMap<std::pair<Value, AffineMap>, Val>;

void withoutFastMath(Operation *op) {
  if (auto fast = dyn_cast<arith::ArithFastMathInterface>(op))
    op->setAttr(fast.getFastMathAttrName(),
                arith::FastMathFlagsAttr::get(op->getContext(), arith::FastMathFlags::none));
}

class KernelEmitter {
public:
  KernelEmitter(kern::KernelOp kernel, RegionInfo &info, const LowerKernelsPassOptions &options,
                SymbolTable &symbols)
      : kernel(kernel), info(info), options(options), symbols(symbols),
        b(kernel.getLoc(), kernel.getContext()) {}

  void emit() {
    b.setInsertionPoint(kernel);
    auto pointer = LLVM::LLVMPointerType::get(b.getContext());
    function = func::FuncOp::create(
        b, kernel.getSymName(), b.getFunctionType({pointer, b.getI64Type(), b.getI64Type()}, {}));
    Block *entry = function.addEntryBlock();
    b.setInsertionPointToStart(entry);
    auto argument = [&](size_t i) -> Value {
      Value slot = LLVM::GEPOp::create(b, pointer, pointer, entry->getArgument(0),
                                       ArrayRef<LLVM::GEPArg>{int32_t(i)});
      return LLVM::LoadOp::create(b, pointer, slot);
    };
    size_t count = kernel.getBody().getNumArguments();
    for (size_t i = 0; i < count; ++i)
      inputs.push_back(argument(i));
    for (size_t i = 0; i < kernel.getBody().front().getTerminator()->getNumOperands(); ++i)
      results.push_back(argument(count + i));
    begin = arith::IndexCastOp::create(b, b.getIndexType(), entry->getArgument(1));
    end = arith::IndexCastOp::create(b, b.getIndexType(), entry->getArgument(2));
    if (info.shape.flat)
      emitFlat();
    else if (info.hero == kern::Hero::ColumnReduction)
      emitColumns();
    else
      emitRows();
    func::ReturnOp::create(b);
  }

private:
  enum class Scope { Kernel, Outer, Lane, Inner };

  // What one pass over a row computes. `outputs` has the indices of the results.
  struct RowPass {
    SmallVector<const Reduction *> reductions;
    SmallVector<const BlockSum *> blockSums;
    SmallVector<unsigned> outputs;
  };

  // LLVM has no 8-bit floats; kernels hold their codes.
  static Type stored(Type element) {
    return isEightBits(element) ? IntegerType::get(element.getContext(), 8) : element;
  }
  Type typeOf(Type element, bool innermost) {
    element = stored(element);
    return innermost && lanes > 1 ? VectorType::get({int64_t(lanes)}, element) : element;
  }
  Scope scopeOf(bool innermost, bool outer) {
    return innermost
               ? (outer || info.hero != kern::Hero::ColumnReduction ? Scope::Inner : Scope::Lane)
               : (outer ? Scope::Outer : Scope::Kernel);
  }
  void enter(Scope scope) {
    Operation *anchor = scope == Scope::Kernel  ? kernelAnchor
                        : scope == Scope::Outer ? outerAnchor
                        : scope == Scope::Lane  ? laneAnchor
                                                : nullptr;
    if (scope == Scope::Outer && info.shape.flat)
      anchor = kernelAnchor;
    if (anchor)
      b.setInsertionPoint(anchor);
  }
  Cache &cacheOf(Scope scope) {
    return scope == Scope::Kernel  ? kernelCache
           : scope == Scope::Outer ? outerCache
           : scope == Scope::Lane  ? laneCaches[copy]
                                   : innerCaches[copy];
  }
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  unsigned rank() const { return info.shape.domain.size(); }
  // Returns true if `map` depends on a dimension of the row other than the innermost one.
  bool variesInRow(AffineMap map) {
    for (unsigned d = info.outerDims(); d + 1 < rank(); ++d)
      if (map.isFunctionOfDim(d))
        return true;
    return false;
  }
  RankedTensorType typeOfResult(unsigned output) {
    Operation *yield = kernel.getBody().front().getTerminator();
    return cast<RankedTensorType>(yield->getOperand(info.outputs[output].result).getType());
  }

  // Returns the number of lanes of a vector: of 64-bit lanes if the kernel has f64, else of 32-bit.
  unsigned fullLanes() const {
    bool wide = false;
    kernel->walk([&](Operation *op) {
      for (Type type : op->getResultTypes())
        wide |= getElementTypeOrSelf(type).isF64();
    });
    return options.vectorWidth / (wide ? 64 : 32);
  }

  // Returns the number of vectors that an iteration of the innermost loop processes. Several
  // accumulators hide the latency of an add, but the number of registers limits them.
  unsigned unrollOf(size_t reductions) const {
    if (info.hero == kern::Hero::ColumnReduction)
      return reductions <= 1 ? 8 : reductions == 2 ? 4 : 2;
    // A loop with row reductions always gets 4. If the result depended on their number, other ops
    // of the kernel would change the order of a sum's terms, and so the sum's rounding.
    return reductions == 0 ? 2 : 4;
  }

  //===--------------------------------------------------------------------===//
  // Evaluation of values

  Val remember(Value value, AffineMap point, Val result) {
    cacheOf(scopeOf(result.innermost, result.outer))[{value, point}] = result;
    return result;
  }

  Val eval(Value value, AffineMap point) {
    std::pair<Value, AffineMap> key(value, point);
    for (Scope scope : {Scope::Kernel, Scope::Outer, Scope::Lane, Scope::Inner}) {
      if ((scope == Scope::Lane && laneCaches.empty()) ||
          (scope == Scope::Inner && innerCaches.empty()))
        continue;
      Cache &cache = cacheOf(scope);
      if (auto it = cache.find(key); it != cache.end())
        return it->second;
    }
    return remember(value, point,
                    isa<RankedTensorType>(value.getType()) ? evalTensor(value, point)
                                                           : evalScalar(value, point));
  }

  Val evalTensor(Value value, AffineMap point) {
    if (auto input = dyn_cast<BlockArgument>(value))
      return load(input, point, {});
    Operation *op = value.getDefiningOp();
    if (auto fill = dyn_cast<linalg::FillOp>(op))
      return eval(fill.value(), AffineMap::get(rank(), 0, {}, b.getContext()));
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      OpBuilder::InsertionGuard guard(b);
      enter(Scope::Kernel);
      auto splat = cast<SplatElementsAttr>(constant.getValue());
      return {arith::ConstantOp::create(b, cast<TypedAttr>(splat.getSplatValue<Attribute>()))};
    }
    auto generic = cast<linalg::GenericOp>(op);
    assert(generic.getNumReductionLoops() == 0 && "reductions are computed by their pass");
    return eval(
        generic.getBody()->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber()),
        point);
  }

  Val indexAt(AffineExpr expr) {
    unsigned n = rank();
    Val result;
    result.outer = info.isOuter(AffineMap::get(n, 0, expr));
    result.innermost = n > 0 && expr.isFunctionOfDim(n - 1);
    OpBuilder::InsertionGuard guard(b);
    bool varies = variesInRow(AffineMap::get(n, 0, expr));
    enter(varies ? Scope::Inner : scopeOf(result.innermost, result.outer));
    if (result.innermost) {
      // The result is the innermost index i itself: the analysis (Hero.h) rejects, say, i + 1.
      result.value = laneBase[copy];
      if (lanes > 1) {
        auto type = cast<VectorType>(typeOf(b.getIndexType(), true));
        SmallVector<Attribute> steps;
        for (unsigned i = 0; i < lanes; ++i)
          steps.push_back(b.getIndexAttr(i));
        Value iota = arith::ConstantOp::create(b, DenseElementsAttr::get(type, steps));
        Value base = vector::BroadcastOp::create(b, type, result.value);
        result.value = arith::AddIOp::create(b, base, iota);
      }
      return result;
    }
    SmallVector<Value> dims = outerDims;
    llvm::append_range(dims, rowDims);
    dims.resize(n);
    for (Value &dim : dims)
      if (!dim)
        dim = index(0);
    result.value = affine::expandAffineExpr(b, b.getLoc(), expr, dims, {});
    return result;
  }

  Val evalScalar(Value value, AffineMap point) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
      OpOperand *operand = generic.getMatchingOpOperand(argument);
      return eval(operand->get(), readPoint(generic, operand, point));
    }
    Operation *op = value.getDefiningOp();
    if (isa<arith::ConstantOp>(op)) {
      OpBuilder::InsertionGuard guard(b);
      enter(Scope::Kernel);
      return {b.clone(*op)->getResult(0)};
    }
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      return indexAt(point.getResult(index.getDim()));
    if (auto extractOp = dyn_cast<tensor::ExtractOp>(op))
      return extract(extractOp, point);
    if (auto compare = dyn_cast<arith::CmpIOp>(op))
      if (Val result = compareLane(compare, point); result.value)
        return result;
    SmallVector<Val> operands;
    for (Value operand : op->getOperands())
      operands.push_back(eval(operand, point));
    return apply(op, operands);
  }

  // Compares the innermost index i with a value k (in a one-hot vector: i == k). Lane j has the
  // index base + j. So the lane numbers 0, 1, 2, ... are compared with k - base, clamped to [-1,
  // lanes]. These numbers fit 32 bits; a vector of 64-bit indices would have half as many lanes.
  Val compareLane(arith::CmpIOp op, AffineMap point) {
    using Predicate = arith::CmpIPredicate;
    if (lanes == 1 || (op.getPredicate() != Predicate::eq && op.getPredicate() != Predicate::ne))
      return {};
    for (unsigned i : {0u, 1u}) {
      auto index = op->getOperand(i).getDefiningOp<linalg::IndexOp>();
      if (!index || rank() == 0 ||
          point.getResult(index.getDim()) != getAffineDimExpr(rank() - 1, b.getContext()))
        continue;
      Val other = eval(op->getOperand(1 - i), point);
      if (other.innermost)
        continue;
      OpBuilder::InsertionGuard guard(b);
      enter(scopeOf(/*innermost=*/true, other.outer));
      Value at = arith::SubIOp::create(b, other.value, laneBase[copy]);
      at = arith::MaxSIOp::create(b, at, this->index(-1));
      at = arith::MinSIOp::create(b, at, this->index(lanes));
      at = arith::IndexCastOp::create(b, b.getI32Type(), at);
      auto type = cast<VectorType>(typeOf(b.getI32Type(), true));
      SmallVector<int32_t> steps = llvm::to_vector(llvm::seq<int32_t>(0, lanes));
      Value iota =
          arith::ConstantOp::create(b, DenseElementsAttr::get(type, ArrayRef<int32_t>(steps)));
      Value spreadAt = vector::BroadcastOp::create(b, type, at);
      return {arith::CmpIOp::create(b, op.getPredicate(), iota, spreadAt), /*innermost=*/true,
              other.outer};
    }
    return {};
  }

  Value spread(Val value) {
    if (lanes == 1 || isa<VectorType>(value.value.getType()))
      return value.value;
    return vector::BroadcastOp::create(b, typeOf(value.value.getType(), true), value.value);
  }

  Val apply(Operation *op, ArrayRef<Val> operands) {
    Val result;
    for (const Val &operand : operands) {
      result.innermost |= operand.innermost;
      result.outer |= operand.outer;
    }
    OpBuilder::InsertionGuard guard(b);
    enter(scopeOf(result.innermost, result.outer));
    SmallVector<Value> values;
    for (const Val &operand : operands)
      values.push_back(result.innermost ? spread(operand) : operand.value);
    result.value = build(op, values, result.innermost);
    return result;
  }

  Value call(StringRef name, ValueRange operands) {
    Type type = getElementTypeOrSelf(operands[0].getType());
    std::string symbol = (name + (type.isF32() ? "f" : "")).str();
    auto callee = symbols.lookup<func::FuncOp>(symbol);
    if (!callee) {
      callee = func::FuncOp::create(
          b.getLoc(), symbol,
          FunctionType::get(b.getContext(), SmallVector<Type>(operands.size(), type), {type}));
      callee.setPrivate();
      symbols.insert(callee);
    }
    auto vector = dyn_cast<VectorType>(operands[0].getType());
    if (!vector)
      return func::CallOp::create(b, callee, operands).getResult(0);
    Value result = arith::ConstantOp::create(b, b.getZeroAttr(vector));
    for (int64_t i = 0; i < vector.getNumElements(); ++i) {
      SmallVector<Value> scalars;
      for (Value operand : operands)
        scalars.push_back(vector::ExtractOp::create(b, operand, i));
      Value one = func::CallOp::create(b, callee, scalars).getResult(0);
      result = vector::InsertOp::create(b, one, result, i);
    }
    return result;
  }

  // Turns an addf or subf of a product into one fma. Both ops or neither must vary along the
  // innermost dimension: scalar loops must use an fma exactly where vector loops do. Both ops must
  // be in one linalg.generic, so that results do not depend on fusion.
  Value contract(Operation *op, ValueRange operands, bool innermost) {
    if (!options.fma || !isa<arith::AddFOp, arith::SubFOp>(op))
      return {};
    bool subtract = isa<arith::SubFOp>(op);
    for (unsigned i : {0u, 1u}) {
      auto product = products.find(operands[i]);
      if (product == products.end() || product->second.innermost != innermost ||
          product->second.body != op->getBlock())
        continue;
      Value x = product->second.x, y = product->second.y;
      Value z = operands[1 - i];
      if (subtract && i == 0)
        z = arith::NegFOp::create(b, z);
      if (subtract && i == 1)
        x = arith::NegFOp::create(b, x);
      return math::FmaOp::create(b, x, y, z);
    }
    return {};
  }

  Value build(Operation *op, ValueRange operands, bool innermost) {
    Type element = op->getResult(0).getType();
    Type source = op->getOperand(0).getType();
    ScalarMath scalarMath{b, options.fma};
    if ((source.isBF16() || isEightBits(source)) && isa<arith::ExtFOp>(op)) {
      Value wide = source.isBF16() ? scalarMath.fromBf16(operands[0])
                                   : scalarMath.fromEightBits(operands[0], cast<FloatType>(source));
      return element.isF32() ? wide : arith::ExtFOp::create(b, typeOf(element, innermost), wide);
    }
    // AVX-512's instruction for this conversion is not used: it rounds results below 2^-126 to
    // zero.
    if (element.isBF16() && isa<arith::TruncFOp>(op))
      return scalarMath.toBf16(operands[0]);
    if (isEightBits(element))
      return scalarMath.toEightBits(operands[0], cast<FloatType>(element));
    if (source.isF32() && isa<math::ExpOp>(op))
      return scalarMath.exp(operands[0]);
    if (source.isF32() && isa<math::LogOp>(op))
      return scalarMath.log(operands[0]);
    if (source.isF32() && isa<math::TanhOp>(op))
      return scalarMath.tanh(operands[0]);
    if (isa<math::RsqrtOp>(op)) {
      Value root = math::SqrtOp::create(b, operands[0]);
      return arith::DivFOp::create(b, scalarMath.constant(root, 1.0), root);
    }
    if (const MathFunction *function = mathFunction(op); function && function->callsLibrary)
      return call(function->name, operands);
    if (Value fused = contract(op, operands, innermost))
      return fused;

    IRMapping mapping;
    mapping.map(op->getOperands(), operands);
    Operation *clone = b.clone(*op, mapping);
    clone->getResult(0).setType(typeOf(element, innermost));
    withoutFastMath(clone);
    Value result = clone->getResult(0);
    if (isa<arith::MulFOp>(op))
      products[result] = {operands[0], operands[1], innermost, op->getBlock()};
    return result;
  }

  //===--------------------------------------------------------------------===//
  // Addresses, loads and stores

  Value element(Value pointer, Type element, Value at) {
    Value offset = arith::IndexCastOp::create(b, b.getI64Type(), at);
    return LLVM::GEPOp::create(b, pointer.getType(), stored(element), pointer,
                               ArrayRef<LLVM::GEPArg>{offset});
  }

  // Returns the address of the element at `point`, or of the first lane of a vector. What does not
  // vary along the innermost dimension is computed outside of the innermost loop.
  Value address(unsigned argument, Value base, RankedTensorType type, AffineMap point,
                ArrayRef<Value> dynamic, bool &outer) {
    unsigned n = rank(), dims = point.getNumResults();
    if (info.shape.flat && n > 0 && point == info.identity)
      return element(base, type.getElementType(), laneBase[copy]);
    bool innermost = n > 0 && point.isFunctionOfDim(n - 1);
    {
      OpBuilder::InsertionGuard guard(b);
      enter(variesInRow(point) ? Scope::Inner : scopeOf(false, outer));
      Value offset;
      for (unsigned i = dims; i-- > 0;) {
        if (innermost && i + 1 == dims)
          continue;
        int64_t stride = info.strideOf(argument, type, i);
        Value at = dynamic.empty() || !dynamic[i] ? indexAt(point.getResult(i)).value : dynamic[i];
        if (stride != 1)
          at = arith::MulIOp::create(b, at, index(stride));
        offset = offset ? arith::AddIOp::create(b, offset, at).getResult() : at;
      }
      if (offset)
        base = element(base, type.getElementType(), offset);
    }
    return innermost ? element(base, type.getElementType(), laneBase[copy]) : base;
  }

  Val load(BlockArgument input, AffineMap point, ArrayRef<Value> dynamic) {
    auto type = cast<RankedTensorType>(input.getType());
    unsigned n = rank();
    Val result;
    result.outer = llvm::any_of(dynamic, [](Value v) { return bool(v); }) || info.isOuter(point);
    result.innermost = n > 0 && point.isFunctionOfDim(n - 1);
    // A flat domain has no outer loops. Its only index is the number of the element.
    if (info.shape.flat)
      result.outer = false;
    OpBuilder::InsertionGuard guard(b);
    enter(scopeOf(result.innermost, result.outer));
    Value pointer = address(input.getArgNumber(), inputs[input.getArgNumber()], type, point,
                            dynamic, result.outer);
    Type element = type.getElementType();
    result.value = LLVM::LoadOp::create(b, typeOf(element, result.innermost), pointer,
                                        element.getIntOrFloatBitWidth() / 8);
    return result;
  }

  // Loads an element at an index that was read from memory. The index is clamped to the tensor: a
  // wrong index gives wrong numbers, but never a read outside of the tensor.
  Val extract(tensor::ExtractOp op, AffineMap point) {
    SmallVector<AffineExpr> exprs;
    SmallVector<Value> dynamic;
    for (auto [dim, at] : llvm::enumerate(op.getIndices())) {
      AffineExpr expr = staticIndex(op, dim, point, info.shape.domain);
      exprs.push_back(expr ? expr : getAffineConstantExpr(0, b.getContext()));
      dynamic.push_back({});
      if (expr)
        continue;
      Val value = eval(at, point);
      OpBuilder::InsertionGuard guard(b);
      enter(Scope::Outer);
      Value clamped = arith::MaxSIOp::create(b, value.value, index(0));
      dynamic.back() =
          arith::MinSIOp::create(b, clamped, index(op.getTensor().getType().getDimSize(dim) - 1));
    }
    return load(cast<BlockArgument>(op.getTensor()),
                AffineMap::get(rank(), 0, exprs, b.getContext()), dynamic);
  }

  Value addressOfResult(unsigned output, AffineMap point, bool outer) {
    const unsigned result = info.outputs[output].result;
    return address(unsigned(inputs.size()) + result, results[result], typeOfResult(output), point,
                   {}, outer);
  }

  void store(unsigned output, AffineMap point, Val value) {
    Value pointer = addressOfResult(output, point, !info.shape.flat);
    bool innermost = info.shape.flat || (rank() > 0 && point.isFunctionOfDim(rank() - 1));
    LLVM::StoreOp::create(b, innermost ? spread(value) : value.value, pointer,
                          typeOfResult(output).getElementTypeBitWidth() / 8);
  }

  // Loads the current value of a result at a point that varies along the innermost dimension.
  Value loadResult(unsigned output, AffineMap point) {
    Type element = typeOfResult(output).getElementType();
    Value pointer = addressOfResult(output, point, /*outer=*/true);
    return LLVM::LoadOp::create(b, typeOf(element, /*innermost=*/true), pointer,
                                element.getIntOrFloatBitWidth() / 8);
  }

  //===--------------------------------------------------------------------===//
  // Parts of reductions

  Value combine(const Reduction &reduction, Value acc, Value term, bool innermost) {
    SmallVector<Value> operands{acc, term};
    if (Value fused = contract(reduction.combiner, operands, innermost))
      return fused;
    Operation *clone = b.clone(*reduction.combiner);
    clone->setOperands(operands);
    clone->getResult(0).setType(acc.getType());
    withoutFastMath(clone);
    return clone->getResult(0);
  }

  Value identityOf(const Reduction &reduction, unsigned lanes) {
    TypedAttr value = codegen::identityOf(reduction);
    if (lanes > 1)
      value = DenseElementsAttr::get(VectorType::get({int64_t(lanes)}, value.getType()),
                                     Attribute(value));
    return arith::ConstantOp::create(b, value);
  }

  // Combines neighbouring pairs, then pairs of the results, and so on: ((0 + 1) + (2 + 3)).
  Value combineTree(const Reduction &reduction, SmallVector<Value> parts) {
    while (parts.size() > 1) {
      SmallVector<Value> next;
      for (size_t i = 0; i + 1 < parts.size(); i += 2)
        next.push_back(combine(reduction, parts[i], parts[i + 1], /*innermost=*/true));
      if (parts.size() % 2)
        next.push_back(parts.back());
      parts = next;
    }
    return parts.front();
  }

  // Reduces a vector to a scalar: combines its upper and lower half until one lane is left.
  Value horizontal(const Reduction &reduction, Value vector) {
    int64_t count = cast<VectorType>(vector.getType()).getNumElements();
    for (int64_t half = count / 2; half >= 1; half /= 2) {
      SmallVector<int64_t> low, high;
      for (int64_t i = 0; i < half; ++i) {
        low.push_back(i);
        high.push_back(half + i);
      }
      Value lower = vector::ShuffleOp::create(b, vector, vector, low);
      Value upper = vector::ShuffleOp::create(b, vector, vector, high);
      vector = combine(reduction, lower, upper, /*innermost=*/true);
    }
    return vector::ExtractOp::create(b, vector, int64_t(0));
  }

  //===--------------------------------------------------------------------===//
  // Emission of loops

  // Starts the code for `copies` adjacent vectors. `first` is the index of their first element.
  void startLane(unsigned copies, unsigned vectorLanes, Value first) {
    lanes = vectorLanes;
    laneCaches.assign(copies, Cache());
    innerCaches.assign(copies, Cache());
    laneBase.assign(1, first);
    for (int64_t u = 1; u < copies; ++u)
      laneBase.push_back(arith::AddIOp::create(b, first, index(u * vectorLanes)));
    copy = 0;
  }

  void endLane() {
    copy = 0;
    lanes = 1;
    laneCaches.clear();
    innerCaches.clear();
  }

  // Emits code that converts a number in row-major order to indices.
  SmallVector<Value> delinearize(Value number, ArrayRef<int64_t> extents) {
    SmallVector<Value> indices(extents.size());
    for (size_t d = extents.size(); d-- > 1;) {
      indices[d] = arith::RemUIOp::create(b, number, index(extents[d]));
      number = arith::DivUIOp::create(b, number, index(extents[d]));
    }
    if (!indices.empty())
      indices[0] = number;
    return indices;
  }

  // Emits one loop along the innermost dimension. Returns the accumulators after the loop: `unroll`
  // accumulators for the first reduction, then `unroll` for the second, and so on.
  SmallVector<Value> innerLoop(Value from, Value to, unsigned unroll, unsigned vectorLanes,
                               const RowPass &pass, ValueRange accumulators) {
    auto loop = scf::ForOp::create(b, from, to, index(int64_t(unroll) * vectorLanes), accumulators);
    Operation *&anchor = info.shape.flat ? kernelAnchor : outerAnchor;
    if (!anchor)
      anchor = loop;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    startLane(unroll, vectorLanes, loop.getInductionVar());
    SmallVector<Value> next(accumulators.size());
    struct Store {
      unsigned copy, output;
      Val value;
    };
    SmallVector<Store> stores;
    for (copy = 0; copy < unroll; ++copy) {
      for (auto [r, reduction] : llvm::enumerate(pass.reductions)) {
        Val term = eval(reduction->term, info.identity);
        next[r * unroll + copy] =
            combine(*reduction, loop.getRegionIterArg(r * unroll + copy), spread(term), true);
      }
      for (unsigned output : pass.outputs)
        stores.push_back(
            {copy, output, eval(info.outputs[output].value, info.outputs[output].point)});
      for (const BlockSum *block : pass.blockSums) {
        Val term = eval(block->sum.term, block->loops);
        Value sum = loadResult(block->output, block->sum.point);
        stores.push_back(
            {copy, block->output, Val{combine(block->sum, sum, spread(term), true), true, true}});
      }
    }
    for (const Store &pending : stores) {
      copy = pending.copy;
      store(pending.output, info.outputs[pending.output].place, pending.value);
    }
    if (!next.empty() || loop.getBody()->empty() ||
        !loop.getBody()->back().hasTrait<OpTrait::IsTerminator>())
      scf::YieldOp::create(b, next);
    endLane();
    return SmallVector<Value>(loop.getResults());
  }

  // Emits a pass over a row. In a row of several dimensions, a segment is the elements that differ
  // only in the innermost index. A loop over the segments adds up the sums of all segments.
  void emitPass(unsigned number) {
    RowPass pass;
    for (const Reduction &r : info.reductions)
      if (r.pass == number)
        pass.reductions.push_back(&r);
    for (const BlockSum &b : info.blockSums)
      if (b.sum.pass == number)
        pass.blockSums.push_back(&b);
    for (auto [i, o] : llvm::enumerate(info.outputs))
      if (info.coversDomain(o) && o.pass == number)
        pass.outputs.push_back(i);
    if (pass.reductions.empty() && pass.blockSums.empty() && pass.outputs.empty())
      return;

    ArrayRef<int64_t> outer =
        ArrayRef<int64_t>(info.shape.domain).drop_back().drop_front(info.outerDims());
    SmallVector<Value> totals;
    if (outer.empty()) {
      totals = emitSegment(pass);
    } else {
      for (const Reduction *r : pass.reductions)
        totals.push_back(identityOf(*r, 1));
      auto loop = scf::ForOp::create(b, index(0), index(llvm::product_of(outer)), index(1), totals);
      outerAnchor = loop;
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(loop.getBody());
      rowDims = delinearize(loop.getInductionVar(), outer);
      SmallVector<Value> next = emitSegment(pass);
      for (auto [i, r] : llvm::enumerate(pass.reductions))
        next[i] = combine(*r, loop.getRegionIterArg(unsigned(i)), next[i], /*innermost=*/false);
      if (!next.empty())
        scf::YieldOp::create(b, next);
      rowDims.clear();
      totals.assign(loop.result_begin(), loop.result_end());
    }
    outerAnchor = nullptr;
    for (auto [i, r] : llvm::enumerate(pass.reductions)) {
      Val init = eval(r->init, r->point);
      Value total = combine(*r, init.value, totals[i], /*innermost=*/false);
      outerCache[{r->result, r->point}] = {total, /*innermost=*/false, /*outer=*/true};
    }
  }

  // Emits three loops: over groups of `unroll` vectors, then over single vectors, then over
  // scalars. Between two loops, accumulators are combined. Returns the total of each reduction.
  SmallVector<Value> emitSegment(const RowPass &pass) {
    ArrayRef<const Reduction *> reductions = pass.reductions;
    int64_t extent = info.shape.domain.back();
    int64_t width = fullLanes(), unroll = unrollOf(reductions.size());
    while (unroll > 1 && extent < unroll * width)
      unroll /= 2;
    int64_t mainEnd = extent - extent % (unroll * width), vectorEnd = extent - extent % width;
    if (vectorEnd == 0)
      mainEnd = 0;

    SmallVector<Value> accumulators;
    if (mainEnd > 0) {
      for (const Reduction *r : reductions)
        accumulators.append(unroll, identityOf(*r, width));
      accumulators = innerLoop(index(0), index(mainEnd), unroll, width, pass, accumulators);
      SmallVector<Value> folded;
      for (auto [i, r] : llvm::enumerate(reductions))
        folded.push_back(combineTree(
            *r, SmallVector<Value>(ArrayRef<Value>(accumulators).slice(i * unroll, unroll))));
      accumulators = folded;
    }
    if (vectorEnd > mainEnd)
      accumulators = innerLoop(index(mainEnd), index(vectorEnd), 1, width, pass, accumulators);
    for (auto [i, r] : llvm::enumerate(reductions)) {
      if (vectorEnd == 0)
        accumulators.push_back(identityOf(*r, 1));
      else
        accumulators[i] = horizontal(*r, accumulators[i]);
    }
    if (extent > vectorEnd)
      accumulators = innerLoop(index(vectorEnd), index(extent), 1, 1, pass, accumulators);
    return accumulators;
  }

  // Calls `emit` for three ranges of the work items: groups of `unroll` vectors, then single
  // vectors, then scalars.
  void
  overItems(int64_t unroll,
            llvm::function_ref<void(Value from, Value to, unsigned copies, unsigned lanes)> emit) {
    const int64_t width = fullLanes();
    Value position = begin;
    auto upTo = [&](unsigned copies) {
      if (info.shape.items < copies * width)
        return;
      Value count = arith::SubIOp::create(b, end, position);
      Value rest = arith::RemUIOp::create(b, count, index(copies * width));
      Value stop = arith::SubIOp::create(b, end, rest);
      emit(position, stop, copies, width);
      position = stop;
    };
    upTo(unroll);
    upTo(1);
    emit(position, end, 1, 1);
  }

  void emitFlat() {
    RowPass pass;
    pass.outputs = llvm::to_vector(llvm::seq<unsigned>(0, info.outputs.size()));
    overItems(unrollOf(0), [&](Value from, Value to, unsigned copies, unsigned vectorLanes) {
      innerLoop(from, to, copies, vectorLanes, pass, {});
    });
  }

  // Stores the start values of sums over blocks of rows. Later every row adds its terms to them.
  void startBlockSums(Value item) {
    SmallVector<Value> outer = outerDims;
    setRow(arith::MulIOp::create(b, item, index(info.shape.rowsPerItem)));
    for (const BlockSum &block : info.blockSums) {
      Val init = eval(block.sum.init, AffineMap::get(rank(), 0, b.getContext()));
      auto fill = [&](int64_t from, int64_t to, unsigned vectorLanes) {
        auto loop = scf::ForOp::create(b, index(from), index(to), index(vectorLanes));
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPoint(loop.getBody()->getTerminator());
        startLane(1, vectorLanes, loop.getInductionVar());
        store(block.output, block.sum.point, init);
      };
      int64_t extent = info.shape.domain.back(), width = fullLanes(),
              whole = extent - extent % width;
      if (whole > 0)
        fill(0, whole, unsigned(width));
      if (whole < extent)
        fill(whole, extent, 1);
    }
    endLane();
    outerCache.clear();
    outerDims = outer;
  }

  void emitRows() {
    auto items = scf::ForOp::create(b, begin, end, index(1));
    kernelAnchor = items;
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(items.getBody()->getTerminator());
    if (info.blockSums.empty())
      return emitRow(items.getInductionVar());
    startBlockSums(items.getInductionVar());
    Value count = index(info.shape.rowsPerItem);
    Value first = arith::MulIOp::create(b, items.getInductionVar(), count);
    Value last = arith::AddIOp::create(b, first, count);
    auto rows = scf::ForOp::create(b, first, last, index(1));
    b.setInsertionPoint(rows.getBody()->getTerminator());
    emitRow(rows.getInductionVar());
  }

  void setRow(Value row) {
    outerDims = delinearize(row, ArrayRef<int64_t>(info.shape.domain).take_front(info.outerDims()));
  }

  void emitRow(Value row) {
    setRow(row);
    unsigned last = info.shape.passes;
    for (const Computed &o : info.outputs)
      last = std::max(last, o.pass + 1);
    for (unsigned pass = 0; pass < last; ++pass) {
      for (const Computed &value : info.outerValues)
        if (value.pass == pass)
          eval(value.value, value.point);
      SmallVector<std::pair<unsigned, Val>> stores;
      for (auto [i, o] : llvm::enumerate(info.outputs))
        if (!info.coversDomain(o) && !info.isBlockSum(o) && o.pass == pass)
          stores.push_back({i, eval(o.value, o.point)});
      emitPass(pass);
      for (auto &[output, value] : stores)
        store(output, info.outputs[output].place, value);
    }
  }

  void emitColumnBlock(Value column, unsigned unroll, unsigned vectorLanes) {
    startLane(unroll, vectorLanes, column);
    int64_t extent = info.shape.domain[0];
    SmallVector<Value> identities;
    for (const Reduction &r : info.reductions)
      identities.append(unroll, identityOf(r, vectorLanes));

    auto blocks = scf::ForOp::create(b, index(0), index(extent), index(kRowBlock), identities);
    laneAnchor = blocks;
    {
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(blocks.getBody());
      Value blockEnd = arith::MinSIOp::create(
          b, arith::AddIOp::create(b, blocks.getInductionVar(), index(kRowBlock)), index(extent));
      auto rows = scf::ForOp::create(b, blocks.getInductionVar(), blockEnd, index(1), identities);
      {
        OpBuilder::InsertionGuard inner(b);
        b.setInsertionPointToStart(rows.getBody());
        outerDims.assign(1, rows.getInductionVar());
        outerCache.clear();
        SmallVector<Value> next(identities.size());
        for (copy = 0; copy < unroll; ++copy)
          for (auto [i, r] : llvm::enumerate(info.reductions)) {
            Val term = eval(r.term, info.identity);
            next[i * unroll + copy] =
                combine(r, rows.getRegionIterArg(i * unroll + copy), spread(term), true);
          }
        scf::YieldOp::create(b, next);
      }
      SmallVector<Value> sums;
      for (auto [i, r] : llvm::enumerate(info.reductions))
        for (unsigned u = 0; u < unroll; ++u)
          sums.push_back(combine(r, blocks.getRegionIterArg(i * unroll + u),
                                 rows.getResult(i * unroll + u), true));
      scf::YieldOp::create(b, sums);
    }
    laneAnchor = nullptr;
    outerDims.clear();
    outerCache.clear();
    SmallVector<Val> values;
    for (copy = 0; copy < unroll; ++copy) {
      innerCaches[copy].clear();
      for (auto [i, r] : llvm::enumerate(info.reductions)) {
        Val init = eval(r.init, r.point);
        Value total = combine(r, spread(init), blocks.getResult(i * unroll + copy), true);
        laneCaches[copy][{r.result, r.point}] = {total, /*innermost=*/true, /*outer=*/false};
      }
      for (const Computed &o : info.outputs)
        values.push_back(eval(o.value, o.point));
    }
    for (auto [i, value] : llvm::enumerate(values)) {
      copy = i / info.outputs.size();
      unsigned output = i % info.outputs.size();
      store(output, info.outputs[output].place, value);
    }
    endLane();
  }

  void emitColumns() {
    overItems(unrollOf(info.reductions.size()),
              [&](Value from, Value to, unsigned copies, unsigned vectorLanes) {
                auto loop = scf::ForOp::create(b, from, to, index(int64_t(copies) * vectorLanes));
                if (!kernelAnchor)
                  kernelAnchor = loop;
                OpBuilder::InsertionGuard guard(b);
                b.setInsertionPoint(loop.getBody()->getTerminator());
                emitColumnBlock(loop.getInductionVar(), copies, vectorLanes);
              });
  }

  kern::KernelOp kernel;
  RegionInfo &info;
  const LowerKernelsPassOptions &options;
  SymbolTable &symbols;
  ImplicitLocOpBuilder b;
  func::FuncOp function;
  Value begin, end;
  SmallVector<Value> inputs, results; // base pointers of the arguments

  SmallVector<Value> outerDims; // indices of the work item, or of the row in a column reduction
  SmallVector<Value> rowDims;   // indices of a row's dimensions except the innermost one
  SmallVector<Value> laneBase;  // innermost index of the first element of each loop body copy
  unsigned lanes = 1, copy = 0; // lanes per vector; number of the copy that is being emitted
  // For each scope, the op before which its code is inserted; null: the current insertion point.
  Operation *kernelAnchor = nullptr, *outerAnchor = nullptr, *laneAnchor = nullptr;
  Cache kernelCache, outerCache;
  SmallVector<Cache> laneCaches, innerCaches;
  struct Product {
    Value x, y;
    bool innermost;
    Block *body; // body of the linalg.generic that contains the product
  };
  DenseMap<Value, Product> products; // results of mulf that may become part of an fma
};

struct LowerKernels : impl::LowerKernelsPassBase<LowerKernels> {
  using LowerKernelsPassBase::LowerKernelsPassBase;

  void runOnOperation() final {
    ModuleOp module = getOperation();
    const LowerKernelsPassOptions options{.vectorWidth = vectorWidth, .fma = fma};
    if (options.vectorWidth != 128 && options.vectorWidth != 256 && options.vectorWidth != 512) {
      module.emitError("kern-lower-kernels: vector-width must be 128, 256 or 512, not ")
          << options.vectorWidth;
      return signalPassFailure();
    }
    SymbolTable symbols(module);
    for (kern::KernelOp kernel : llvm::make_early_inc_range(module.getOps<kern::KernelOp>())) {
      llvm::Expected<RegionInfo> info = analyzeKernel(kernel);
      if (!info) {
        kernel.emitOpError("cannot be emitted: ") << llvm::toString(info.takeError());
        return signalPassFailure();
      }
      KernelEmitter(kernel, *info, options, symbols).emit();
      kernel.erase();
    }
  }
};

} // namespace

void buildKernelsToLLVM(OpPassManager &manager, const LowerKernelsPassOptions &options) {
  manager.addPass(createLowerKernelsPass(options));
  manager.addPass(createCanonicalizerPass());
  manager.addPass(createCSEPass());
  manager.addPass(createSCFToControlFlowPass());
  manager.addPass(createConvertVectorToLLVMPass());
  manager.addPass(createConvertMathToLLVMPass());
  manager.addPass(createArithToLLVMConversionPass());
  manager.addPass(createConvertControlFlowToLLVMPass());
  manager.addPass(createConvertFuncToLLVMPass());
  manager.addPass(createReconcileUnrealizedCastsPass());
}

} // namespace lmc::codegen
