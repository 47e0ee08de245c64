#include "compiler/extract/HostReference.h"
#include "compiler/kernels/MathFunctions.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using llvm::formatv;

namespace lmc {
namespace {

// Prints a kernel region. Each tensor value becomes a C++ member function `double vN(int64_t i0,
// int64_t i1, ...)` that returns one element.
class Printer {
public:
  explicit Printer(kern::KernelOp kernel) : body(kernel.getBody().front()) {}

  llvm::Expected<std::string> run();

private:
  std::string name(Value tensor);
  void input(BlockArgument tensor);
  void part(tensor::InsertSliceOp insert);
  void elementwise(OpResult tensor, linalg::GenericOp generic);
  void reduction(OpResult tensor, linalg::GenericOp generic);
  std::string statements(linalg::GenericOp generic, Value yielded, StringRef indent,
                         DenseMap<Value, std::string> &names);
  std::string read(linalg::GenericOp generic, OpOperand *operand);
  std::string scalar(Operation *op, ArrayRef<std::string> x);
  std::string constant(Attribute value);
  void function(Value tensor, StringRef statements);

  Block &body;
  DenseMap<Value, unsigned> numbers;
  std::string text;
  std::string complaint;
};

} // namespace

static RankedTensorType typeOf(Value tensor) { return cast<RankedTensorType>(tensor.getType()); }

std::string Printer::name(Value tensor) {
  return "v" + std::to_string(numbers.try_emplace(tensor, unsigned(numbers.size())).first->second);
}

static std::string indexNames(int64_t rank, StringRef prefix, StringRef type = "") {
  SmallVector<std::string> names;
  for (int64_t i = 0; i < rank; ++i)
    names.push_back((type + prefix + std::to_string(i)).str());
  return llvm::join(names, ", ");
}

// Returns C++ text: the row-major index of the element with the indices PREFIX0, PREFIX1, ...
static std::string flatIndex(ArrayRef<int64_t> shape, StringRef prefix) {
  std::string flat = "0";
  for (auto [i, extent] : llvm::enumerate(shape))
    flat = i == 0 ? prefix.str() + "0" : formatv("({0}) * {1} + {2}{3}", flat, extent, prefix, i);
  return flat;
}

void Printer::function(Value tensor, StringRef statements) {
  text += formatv("  double {0}({1}) {{\n{2}  }\n", name(tensor),
                  indexNames(typeOf(tensor).getRank(), "i", "int64_t "), statements);
}

void Printer::input(BlockArgument tensor) {
  function(tensor, formatv("    return arrays[{0}].at({1});\n", tensor.getArgNumber(),
                           flatIndex(typeOf(tensor).getShape(), "i"))
                       .str());
}

static std::string indexText(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return std::to_string(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return "d" + std::to_string(dim.getPosition());
  auto binary = cast<AffineBinaryOpExpr>(expr);
  const char *op = expr.getKind() == AffineExprKind::Add        ? "+"
                   : expr.getKind() == AffineExprKind::Mul      ? "*"
                   : expr.getKind() == AffineExprKind::FloorDiv ? "/" // indices are never negative
                                                                : "%";
  return formatv("({0} {1} {2})", indexText(binary.getLHS()), op, indexText(binary.getRHS()));
}

std::string Printer::read(linalg::GenericOp generic, OpOperand *operand) {
  SmallVector<std::string> indices;
  for (AffineExpr expr : generic.getMatchingIndexingMap(operand).getResults())
    indices.push_back(indexText(expr));
  return name(operand->get()) + "(" + llvm::join(indices, ", ") + ")";
}

std::string Printer::constant(Attribute value) {
  if (auto splat = dyn_cast<SplatElementsAttr>(value))
    return constant(splat.getSplatValue<Attribute>());
  if (auto integer = dyn_cast<IntegerAttr>(value))
    return integer.getType().isInteger(1) ? (integer.getValue().isZero() ? "false" : "true")
                                          : std::to_string(integer.getValue().getSExtValue());
  auto real = dyn_cast<FloatAttr>(value);
  if (!real) {
    complaint = "a constant that is neither a number nor a splat";
    return "0";
  }
  APFloat number = real.getValue();
  if (number.isNaN())
    return "NAN";
  if (number.isInfinity())
    return number.isNegative() ? "-INFINITY" : "INFINITY";
  return formatv("double({0})", llvm::format("%.17g", real.getValueAsDouble()));
}

static std::string compared(arith::CmpFPredicate predicate, StringRef a, StringRef b) {
  // An unordered comparison is true if an operand is NaN. So "a < b or unordered" is !(a >= b).
  static constexpr const char *texts[] = {
      "false",                      // AlwaysFalse
      "({0} == {1})",               // OEQ
      "({0} > {1})",                // OGT
      "({0} >= {1})",               // OGE
      "({0} < {1})",                // OLT
      "({0} <= {1})",               // OLE
      "({0} < {1} || {0} > {1})",   // ONE
      "({0} == {0} && {1} == {1})", // ORD
      "!({0} < {1} || {0} > {1})",  // UEQ
      "!({0} <= {1})",              // UGT
      "!({0} < {1})",               // UGE
      "!({0} >= {1})",              // ULT
      "!({0} > {1})",               // ULE
      "!({0} == {1})",              // UNE
      "({0} != {0} || {1} != {1})", // UNO
      "true",                       // AlwaysTrue
  };
  static_assert(std::size(texts) == arith::getMaxEnumValForCmpFPredicate() + 1);
  return formatv(/*Validate=*/false, texts[size_t(predicate)], a, b);
}

static std::string compared(arith::CmpIPredicate predicate, StringRef a, StringRef b) {
  // eq, ne, slt, sle, sgt, sge, ult, ule, ugt, uge
  static constexpr const char *signs[] = {"==", "!=", "<", "<=", ">", ">=", "<", "<=", ">", ">="};
  static_assert(std::size(signs) == arith::getMaxEnumValForCmpIPredicate() + 1);
  const bool isUnsigned = predicate >= arith::CmpIPredicate::ult;
  return formatv(isUnsigned ? "(uint64_t({0}) {1} uint64_t({2}))" : "({0} {1} {2})", a,
                 signs[size_t(predicate)], b);
}

// Prints the conversion of a 64-bit integer to `type` and back. It wraps like a cast in C++.
static std::string wrapped(Type type, const llvm::Twine &value) {
  if (type.isInteger(8))
    return ("int64_t(int8_t(" + value + "))").str();
  if (type.isInteger(32))
    return ("int64_t(int32_t(" + value + "))").str();
  return ("(" + value + ")").str();
}

// Prints an op of a linalg.generic's body as an expression of its operands `x`. Printed floats are
// double, integers are int64_t, and i1 is bool.
std::string Printer::scalar(Operation *op, ArrayRef<std::string> x) {
  Type to = op->getResult(0).getType();
  auto infix = [&](StringRef sign) { return formatv("({0} {1} {2})", x[0], sign, x[1]).str(); };
  auto integer = [&](StringRef sign) {
    return to.isInteger(1) ? formatv("bool({0} {1} {2})", x[0], sign, x[1]).str()
                           : wrapped(to, x[0] + " " + sign + " " + x[1]);
  };
  auto call = [&](StringRef function) {
    return (function + "(" + llvm::join(x, ", ") + ")").str();
  };
  // maximumf and minimumf return NaN if either operand is NaN, unlike std::fmax and std::fmin.
  auto extremum = [&](StringRef sign) {
    return formatv("({0} != {0} || {0} {2} {1} ? {0} : {1})", x[0], x[1], sign).str();
  };
  auto unsignedOperand = [&] {
    Type from = op->getOperand(0).getType();
    return from.isInteger(32)  ? "uint32_t(" + x[0] + ")"
           : from.isInteger(8) ? "uint8_t(" + x[0] + ")"
                               : x[0];
  };
  if (const codegen::MathFunction *function = codegen::mathFunction(op))
    return function->host.empty() ? call(("std::" + function->name).str())
                                  : formatv(function->host.data(), x[0]).str();
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case([&](arith::ConstantOp op) { return constant(op.getValue()); })
      .Case([&](linalg::IndexOp op) { return "d" + std::to_string(op.getDim()); })
      .Case([&](tensor::ExtractOp op) {
        SmallVector<std::string> indices;
        for (auto [i, extent] : llvm::enumerate(typeOf(op.getTensor()).getShape()))
          indices.push_back(formatv("host::clampIndex({0}, {1})", x[i + 1], extent));
        return name(op.getTensor()) + "(" + llvm::join(indices, ", ") + ")";
      })
      .Case([&](arith::AddFOp) { return infix("+"); })
      .Case([&](arith::SubFOp) { return infix("-"); })
      .Case([&](arith::MulFOp) { return infix("*"); })
      .Case([&](arith::DivFOp) { return infix("/"); })
      .Case([&](arith::NegFOp) { return "(-" + x[0] + ")"; })
      .Case([&](arith::MaximumFOp) { return extremum(">"); })
      .Case([&](arith::MinimumFOp) { return extremum("<"); })
      .Case([&](arith::CmpFOp op) { return compared(op.getPredicate(), x[0], x[1]); })
      .Case([&](arith::CmpIOp op) { return compared(op.getPredicate(), x[0], x[1]); })
      .Case([&](arith::SelectOp) { return formatv("({0} ? {1} : {2})", x[0], x[1], x[2]).str(); })
      .Case([&](arith::ExtFOp) { return x[0]; })
      .Case([&](arith::TruncFOp) {
        return to.isBF16()                 ? call("host::roundBf16")
               : to.isF16()                ? call("host::roundF16")
               : isa<Float8E4M3FNType>(to) ? call("host::roundE4M3")
               : isa<Float8E5M2Type>(to)   ? call("host::roundE5M2")
                                           : x[0];
      })
      .Case([&](arith::SIToFPOp op) {
        return op.getIn().getType().isInteger(1) ? "(" + x[0] + " ? -1.0 : 0.0)"
                                                 : "double(" + x[0] + ")";
      })
      .Case([&](arith::UIToFPOp) { return "double(" + unsignedOperand() + ")"; })
      .Case([&](arith::FPToSIOp) { return wrapped(to, "int64_t(" + x[0] + ")"); })
      .Case<arith::IndexCastOp, arith::TruncIOp>(
          [&](auto) { return to.isInteger(1) ? "bool(" + x[0] + " & 1)" : wrapped(to, x[0]); })
      .Case([&](arith::ExtSIOp op) {
        return op.getIn().getType().isInteger(1) ? "(" + x[0] + " ? int64_t(-1) : int64_t(0))"
                                                 : x[0];
      })
      .Case([&](arith::ExtUIOp) { return "int64_t(" + unsignedOperand() + ")"; })
      .Case([&](arith::AddIOp) { return integer("+"); })
      .Case([&](arith::SubIOp) { return integer("-"); })
      .Case([&](arith::MulIOp) { return integer("*"); })
      .Case([&](arith::DivSIOp) { return integer("/"); })
      .Case([&](arith::AndIOp) { return integer("&"); })
      .Case([&](arith::OrIOp) { return integer("|"); })
      .Case([&](arith::XOrIOp) { return integer("^"); })
      .Case([&](arith::MaxSIOp) { return "std::max<int64_t>(" + x[0] + ", " + x[1] + ")"; })
      .Case([&](arith::MinSIOp) { return "std::min<int64_t>(" + x[0] + ", " + x[1] + ")"; })
      .Case([&](arith::ShLIOp) { return integer("<<"); })
      .Case([&](arith::ShRSIOp) { return integer(">>"); })
      .Case([&](arith::ShRUIOp) {
        return to.isInteger(32) ? wrapped(to, "uint32_t(" + x[0] + ") >> " + x[1])
                                : wrapped(to, "int64_t(uint64_t(" + x[0] + ") >> " + x[1] + ")");
      })
      .Case([&](arith::BitcastOp) {
        if (op->getOperand(0).getType().isF32() && to.isInteger(32))
          return call("host::bitsOf");
        if (op->getOperand(0).getType().isInteger(32) && to.isF32())
          return call("host::fromBits");
        complaint = "an arith.bitcast between other types than f32 and i32";
        return std::string("0");
      })
      .Default([&](Operation *op) {
        complaint = "no C++ for '" + op->getName().getStringRef().str() + "'";
        return std::string("0");
      });
}

// Prints the declarations of all values that `yielded` depends on, and adds the expression of each
// value to `names`. The caller must have added the expressions of the accumulators.
std::string Printer::statements(linalg::GenericOp generic, Value yielded, StringRef indent,
                                DenseMap<Value, std::string> &names) {
  std::string made;
  unsigned count = 0;
  auto visit = [&](auto &self, Value value) -> void {
    if (names.contains(value))
      return;
    std::string expression;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      expression = read(generic, generic.getMatchingOpOperand(argument));
    } else {
      Operation *op = value.getDefiningOp();
      SmallVector<std::string> operands;
      for (Value operand : op->getOperands())
        if (isa<RankedTensorType>(operand.getType())) {
          operands.push_back("");
        } else {
          self(self, operand);
          operands.push_back(names[operand]);
        }
      expression = scalar(op, operands);
    }
    std::string variable = "x" + std::to_string(count++);
    const char *type = value.getType().isInteger(1)                 ? "bool"
                       : isa<FloatType>(value.getType()) ? "double" : "int64_t";
    made += formatv("{0}const {1} {2} = {3}({4});\n", indent, type, variable, type, expression);
    names[value] = variable;
  };
  visit(visit, yielded);
  return made;
}

void Printer::elementwise(OpResult tensor, linalg::GenericOp generic) {
  unsigned number = tensor.getResultNumber();
  std::string code;
  // The indexing map is the identity. So loop index d is element index d.
  for (int64_t d = 0; d < int64_t(generic.getNumLoops()); ++d)
    code += formatv("    const int64_t d{0} = i{0};\n    (void)d{0};\n", d);
  DenseMap<Value, std::string> names;
  Value yielded = generic.getBody()->getTerminator()->getOperand(number);
  code += statements(generic, yielded, "    ", names);
  function(tensor, code + "    return double(" + names[yielded] + ");\n");
}

// Prints the function that returns an element of a reduction's result: acc = init, then acc =
// body(acc) in loops over the reduced dimensions. A hash map stores elements already computed.
void Printer::reduction(OpResult tensor, linalg::GenericOp generic) {
  unsigned number = tensor.getResultNumber();
  OpOperand *init = generic.getDpsInitOperand(number);
  AffineMap out = generic.getMatchingIndexingMap(init);
  std::string memo = "memo" + name(tensor);
  text += formatv("  std::unordered_map<int64_t, double> {0};\n", memo);
  std::string code = formatv("    const int64_t flat = {0};\n"
                             "    if (auto known = {1}.find(flat); known != {1}.end())\n"
                             "      return known->second;\n",
                             flatIndex(typeOf(tensor).getShape(), "i"), memo);
  for (auto [i, expr] : llvm::enumerate(out.getResults()))
    code += formatv("    const int64_t d{0} = i{1};\n", cast<AffineDimExpr>(expr).getPosition(), i);
  code += "    double acc = " + read(generic, init) + ";\n";
  SmallVector<int64_t> extents = generic.getStaticLoopRanges();
  std::string indent = "    ";
  for (auto [d, kind] : llvm::enumerate(generic.getIteratorTypesArray()))
    if (kind == utils::IteratorType::reduction) {
      code += formatv("{0}for (int64_t d{1} = 0; d{1} < {2}; ++d{1}) {{\n", indent, d, extents[d]);
      indent += "  ";
    }
  DenseMap<Value, std::string> names{{generic.getRegionOutputArgs()[number], "acc"}};
  Value yielded = generic.getBody()->getTerminator()->getOperand(number);
  code += statements(generic, yielded, indent, names);
  code += indent + "acc = " + names[yielded] + ";\n";
  for (; indent.size() > 4; indent.resize(indent.size() - 2))
    code += indent.substr(2) + "}\n";
  function(tensor, code + formatv("    return {0}[flat] = acc;\n", memo).str());
}

// Prints the function of a tensor.insert_slice. Inside the slice, it returns inserted elements.
void Printer::part(tensor::InsertSliceOp insert) {
  SmallVector<std::string> inside, indices;
  llvm::SmallBitVector dropped = insert.getDroppedDims();
  for (auto [i, offset, size] :
       llvm::enumerate(insert.getStaticOffsets(), insert.getStaticSizes())) {
    inside.push_back(formatv("i{0} >= {1} && i{0} < {2}", i, offset, offset + size));
    if (!dropped[i])
      indices.push_back(formatv("i{0} - {1}", i, offset));
  }
  std::string whole = "0"; // elements outside of all parts are never read
  if (!insert.getDest().getDefiningOp<tensor::EmptyOp>())
    whole = name(insert.getDest()) + "(" +
            indexNames(typeOf(insert.getDest()).getRank(), "i") + ")";
  function(insert.getResult(), formatv("    return {0} ? {1}({2}) : {3};\n",
                                       llvm::join(inside, " && "), name(insert.getSource()),
                                       llvm::join(indices, ", "), whole)
                                   .str());
}

llvm::Expected<std::string> Printer::run() {
  text = "// The same maths as plain loops in f64.\nstruct Reference {\n";
  for (BlockArgument argument : body.getArguments())
    input(argument);
  for (Operation &op : body.without_terminator()) {
    if (auto fill = dyn_cast<linalg::FillOp>(op)) {
      auto value = fill.value().getDefiningOp<arith::ConstantOp>();
      function(fill->getResult(0),
               value ? "    return double(" + constant(value.getValue()) + ");\n" : "");
      if (!value)
        complaint = "a fill with what is no constant";
    } else if (auto insert = dyn_cast<tensor::InsertSliceOp>(op)) {
      part(insert);
    } else if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      for (OpResult result : generic->getResults())
        generic.getNumReductionLoops() > 0 ? reduction(result, generic)
                                           : elementwise(result, generic);
    } else if (auto value = dyn_cast<arith::ConstantOp>(op)) {
      if (isa<RankedTensorType>(value.getType()))
        function(value, "    return double(" + constant(value.getValue()) + ");\n");
    } else if (!isa<tensor::EmptyOp>(op)) {
      complaint = "'" + op.getName().getStringRef().str() + "' in its region";
    }
  }
  text += "  double result(int number, int64_t element) {\n    switch (number) {\n";
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    text += formatv("    case {0}: {{\n", i);
    ArrayRef<int64_t> shape = typeOf(value).getShape();
    for (int64_t d = int64_t(shape.size()) - 1; d >= 0; --d)
      text += formatv("      const int64_t i{0} = element % {1};\n      element /= {1};\n", d,
                      shape[d]);
    text += formatv("      return {0}({1});\n    }\n", name(value), indexNames(shape.size(), "i"));
  }
  text += "    }\n    return NAN;\n  }\n};\n";
  if (!complaint.empty())
    return llvm::createStringError("there is no reference for the kernel: " + complaint);
  return std::move(text);
}

llvm::Expected<std::string> hostReference(kern::KernelOp kernel) { return Printer(kernel).run(); }

int64_t integerBound(kern::KernelOp kernel) {
  int64_t least = INT64_MAX, most = 1;
  kernel.walk([&](tensor::ExtractOp extract) {
    for (auto [index, extent] :
         llvm::zip(extract.getIndices(), typeOf(extract.getTensor()).getShape()))
      if (!index.getDefiningOp<linalg::IndexOp>())
        least = std::min(least, extent);
  });
  for (BlockArgument argument : kernel.getBody().getArguments())
    for (int64_t extent : typeOf(argument).getShape())
      most = std::max(most, extent);
  return std::min(least == INT64_MAX ? most : least, int64_t(INT32_MAX));
}

// Returns true if a value depends on inputs, and all these inputs are 8-bit codes.
static bool isOfCodesAlone(Value value) {
  bool isOfCodes = false;
  llvm::SetVector<Value> work;
  work.insert(value);
  for (size_t i = 0; i < work.size(); ++i) {
    if (Operation *op = work[i].getDefiningOp()) {
      work.insert(op->operand_begin(), op->operand_end());
      continue;
    }
    if (!work[i].getType().isInteger(8))
      return false;
    isOfCodes = true;
  }
  return isOfCodes;
}

static bool scalesCodes(BlockArgument factor) {
  return llvm::any_of(factor.getUses(), [](OpOperand &use) {
    return isa<arith::MulFOp>(use.getOwner()) &&
           isOfCodesAlone(use.getOwner()->getOperand(1 - use.getOperandNumber()));
  });
}

bool isPositive(BlockArgument input) {
  RankedTensorType type = typeOf(input);
  if (!isa<FloatType>(type.getElementType()))
    return false;
  return type.getRank() == 0 || llvm::any_of(input.getUses(), [](OpOperand &use) {
           auto generic = dyn_cast<linalg::GenericOp>(use.getOwner());
           return generic && scalesCodes(generic.getMatchingBlockArgument(&use));
         });
}

FloatType precisionOf(Value result) {
  auto least = dyn_cast<FloatType>(typeOf(result).getElementType());
  llvm::SetVector<Value> work;
  work.insert(result);
  for (size_t i = 0; i < work.size(); ++i) {
    Value value = work[i];
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (auto generic = dyn_cast<linalg::GenericOp>(argument.getOwner()->getParentOp()))
        work.insert(generic.getMatchingOpOperand(argument)->get());
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (auto generic = dyn_cast<linalg::GenericOp>(op)) {
      unsigned number = cast<OpResult>(value).getResultNumber();
      work.insert(generic.getBody()->getTerminator()->getOperand(number));
      continue; // adds the tensor of initial values only if the body reads its argument
    }
    auto type = dyn_cast<FloatType>(value.getType());
    // Ignores constants and inputs: the kernel and the reference round them in the same way.
    if (type && !isa<arith::ConstantOp, tensor::ExtractOp>(op) && (!least || type.getWidth() < least.getWidth()))
      least = type;
    work.insert(op->operand_begin(), op->operand_end());
  }
  return least;
}

} // namespace lmc
