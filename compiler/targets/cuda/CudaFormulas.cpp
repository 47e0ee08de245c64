// Prints the formulas of a kernel region, for the comment above a kernel. Leaves out conversions
// from a narrower type to f32, but prints roundings to bf16.
#include "compiler/kernels/MathFunctions.h"
#include "compiler/targets/cuda/CudaEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

// Returns the indices of a tensor, such as "[i0, 1]"; empty if every index is a plain loop index.
std::string indices(AffineMap map) {
  if (llvm::all_of(map.getResults(), [](AffineExpr e) { return isa<AffineDimExpr>(e); }))
    return "";
  std::string text;
  llvm::raw_string_ostream os(text);
  map.print(os);
  size_t begin = text.rfind('(');
  return "[" + text.substr(begin + 1, text.size() - begin - 2) + "]";
}

// Returns the literal of `value` without the C++ suffix of its type, for example 1.5 for 1.5f.
CudaExpr literal(TypedAttr value) {
  CudaExpr made = cudaConstant(value);
  std::string &text = made.text;
  if (auto real = dyn_cast<FloatAttr>(value)) {
    if (real.getValue().isInfinity())
      return real.getValue().isNegative() ? CudaExpr{"-inf", CudaExpr::Prefix} : CudaExpr{"inf"};
    if (text.back() == 'f')
      text.pop_back();
    if (StringRef(text).ends_with(".0"))
      text.resize(text.size() - 2);
  } else if (!value.getType().isInteger(1)) {
    text = std::to_string(cast<IntegerAttr>(value).getValue().getSExtValue());
    made.binding = text[0] == '-' ? CudaExpr::Prefix : CudaExpr::Atom;
  }
  return made;
}

class FormulaPrinter {
public:
  FormulaPrinter(kern::KernelOp kernel) : region(kernel.getBody().front()) {}

  std::vector<std::string> print() {
    for (auto [number, value] : llvm::enumerate(region.getTerminator()->getOperands())) {
      SmallVector<kern::ResultPart> parts = kern::partsOfResult(value);
      for (const kern::ResultPart &part : parts) {
        CudaExpr made = tensor(part.value);
        std::string name = "y" + std::to_string(number);
        if (parts.size() > 1)
          name += indices(part.place);
        lines.push_back(name + " = " + made.text);
        if (parts.size() == 1)
          known[part.value] = {name};
      }
    }
    return lines;
  }

private:
  CudaExpr tensor(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    if (auto input = dyn_cast<BlockArgument>(value))
      return {"x" + std::to_string(input.getArgNumber())};
    Operation *op = value.getDefiningOp();
    if (auto fill = dyn_cast<linalg::FillOp>(op))
      return scalar(fill.value());
    if (auto constant = dyn_cast<arith::ConstantOp>(op))
      return literal(
          cast<TypedAttr>(cast<SplatElementsAttr>(constant.getValue()).getSplatValue<Attribute>()));
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!generic)
      return {"?"};
    auto result = cast<OpResult>(value);
    if (generic.getNumReductionLoops() > 0)
      return reduction(result);
    CudaExpr made =
        scalar(generic.getBody()->getTerminator()->getOperand(result.getResultNumber()));
    return value.hasOneUse() || made.text.size() < 12 ? made : named(value, "t", made);
  }

  CudaExpr scalar(Value value) {
    if (auto it = known.find(value); it != known.end())
      return it->second;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
      return element(generic, generic.getMatchingOpOperand(argument));
    }
    Operation *op = value.getDefiningOp();
    if (auto constant = dyn_cast<arith::ConstantOp>(op))
      return literal(cast<TypedAttr>(constant.getValue()));
    if (auto index = dyn_cast<linalg::IndexOp>(op))
      return {"i" + std::to_string(index.getDim())};
    if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
      std::string text = tensor(extract.getTensor()).text + "[";
      for (auto [i, at] : llvm::enumerate(extract.getIndices()))
        text += (i ? ", " : "") + scalar(at).text;
      return {text + "]"};
    }
    CudaExpr made = apply(op);
    if (value.hasOneUse() || made.text.size() < 12)
      return made;
    return named(value, "t", made);
  }

  CudaExpr reduction(OpResult value) {
    auto generic = cast<linalg::GenericOp>(value.getOwner());
    BlockArgument acc = generic.getRegionOutputArgs()[value.getResultNumber()];
    Operation *combiner =
        generic.getBody()->getTerminator()->getOperand(value.getResultNumber()).getDefiningOp();
    Value term = combiner->getOperand(combiner->getOperand(0) == acc ? 1 : 0);
    std::string name = nameOfReduction(combiner).str();
    // In a sum over blocks of rows, the first loop (blocks) and the last (columns) do not reduce.
    SmallVector<utils::IteratorType> kinds = generic.getIteratorTypesArray();
    bool ofRows = kinds.front() == utils::IteratorType::parallel &&
                  kinds.back() == utils::IteratorType::parallel;
    if (ofRows) {
      int64_t rows = 1;
      for (auto [kind, extent] : llvm::zip_equal(kinds, generic.getStaticLoopRanges()))
        rows *= kind == utils::IteratorType::reduction ? extent : 1;
      name += " of every " + std::to_string(rows) + " rows";
    }
    CudaExpr made{name + (ofRows ? " of (" : "(") + scalar(term).text + ")"};
    return named(value, "s", made);
  }

  CudaExpr element(linalg::GenericOp generic, OpOperand *operand) {
    CudaExpr whole = tensor(operand->get());
    std::string at = indices(generic.getMatchingIndexingMap(operand));
    return at.empty() ? whole : CudaExpr{whole.within(CudaExpr::Atom) + at};
  }

  CudaExpr apply(Operation *op) {
    auto operand = [&](unsigned i) { return scalar(op->getOperand(i)); };
    if (isa<arith::ExtFOp, arith::IndexCastOp, arith::ExtSIOp, arith::ExtUIOp>(op))
      return operand(0);
    if (isa<arith::MulFOp>(op) && op->getOperand(0) == op->getOperand(1))
      return {operand(0).within(CudaExpr::Atom) + "^2"};
    SmallVector<CudaExpr> operands;
    for (Value value : op->getOperands())
      operands.push_back(scalar(value));
    CudaExpr made = cudaApply(op, operands);
    // Removes the suffix "f" of function names: expf becomes exp.
    if (const MathFunction *function = mathFunction(op);
        function && op->getResult(0).getType().isF32())
      made.text.erase(function->name.size(), 1);
    if (StringRef(made.text).starts_with("toBf16("))
      made.text.replace(0, 6, "bf16");
    if (StringRef(made.text).starts_with("toF16("))
      made.text.replace(0, 5, "f16");
    if (StringRef(made.text).starts_with("toE4M3("))
      made.text.replace(0, 6, "e4m3");
    if (StringRef(made.text).starts_with("toE5M2("))
      made.text.replace(0, 6, "e5m2");
    return made;
  }

  CudaExpr named(Value value, StringRef prefix, CudaExpr made) {
    std::string name = prefix.str() + std::to_string(counters[prefix.str()]++);
    lines.push_back(name + " = " + made.text);
    return known[value] = {name};
  }

  Block &region;
  std::vector<std::string> lines;
  llvm::DenseMap<Value, CudaExpr> known;
  std::map<std::string, unsigned> counters;
};

} // namespace

std::vector<std::string> cudaFormulas(kern::KernelOp kernel) {
  return FormulaPrinter(kernel).print();
}

} // namespace lmc::codegen
