#include "compiler/targets/cuda/CudaEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExpr.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;

namespace lmc::codegen {
namespace {

// An expression of more characters than this is stored in a variable.
constexpr size_t kLongExpression = 60;

} // namespace

// Collects all identifiers in `text` that may be names of variables.
static void collectWords(StringRef text, std::set<std::string> &words) {
  while (!text.empty()) {
    text = text.drop_while([](char c) { return !llvm::isAlnum(c) && c != '_'; });
    StringRef word = text.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
    words.insert(word.str());
    text = text.drop_front(word.size());
  }
}

void CudaIndex::print(CudaText &to, const CudaText &body, StringRef also) const {
  std::set<std::string> words;
  collectWords(also, words);
  for (const std::string &line : body.lines)
    collectWords(line, words);
  CudaText kept;
  for (const Variable &variable : llvm::reverse(variables)) {
    if (!words.count(variable.name))
      continue;
    kept.line("const " + variable.type + " " + variable.name + " = " + variable.expr + ";");
    collectWords(variable.expr, words);
  }
  std::reverse(kept.lines.begin(), kept.lines.end());
  to.append(kept);
}

void CudaText::block(const Twine &head, const CudaText &body) {
  std::string text = head.str();
  line(text.empty() ? "{" : text + " {");
  for (const std::string &inner : body.lines)
    line(inner.empty() || inner[0] == '#' ? inner : "  " + inner);
  line("}");
}

CudaEmitter::CudaEmitter(kern::KernelOp kernel, const RegionInfo &info)
    : kernel(kernel), info(info), context(kernel.getContext()), region(kernel.getBody().front()),
      inputs(region.getNumArguments()), isColumn(info.hero == kern::Hero::ColumnReduction) {
  width = findWidth();
}

//===-- Vector widths -----------------------------------------------------------------------===//

bool CudaEmitter::isInnermost(AffineMap point) {
  return rank() > 0 && point.isFunctionOfDim(rank() - 1);
}

RankedTensorType CudaEmitter::typeOf(unsigned argument) {
  return cast<RankedTensorType>(
      argument < inputs ? region.getArgument(argument).getType()
                        : region.getTerminator()->getOperand(argument - inputs).getType());
}

std::string CudaEmitter::nameOf(unsigned argument) {
  return argument < inputs ? "x" + std::to_string(argument)
                           : "y" + std::to_string(argument - inputs);
}

// Returns true if every vector of `width` elements at `point` is aligned to the vector's size. An
// argument starts at a multiple of 64 bytes. A range of C columns of a wider tensor starts at a
// multiple of C elements instead.
bool CudaEmitter::widthFits(unsigned argument, AffineMap point, unsigned width) {
  RankedTensorType type = typeOf(argument);
  if (argument < info.argPitches.size() && info.argPitches[argument] != 0) {
    int64_t run = type.getNumElements() / info.argRows[argument];
    if (run % width || info.argPitches[argument] % width)
      return false;
  }
  if (info.shape.flat && point == info.identity)
    return true;
  for (unsigned i = 0; i + 1 < point.getNumResults(); ++i) {
    auto constant = dyn_cast<AffineConstantExpr>(point.getResult(i));
    bool dynamic = argument < inputs; // `point` has 0 for an input's index that is read from memory
    if ((!constant || constant.getValue() != 0 || dynamic) &&
        info.strideOf(argument, type, i) % width)
      return false;
  }
  return true;
}

// Returns true if `point` depends on every dimension of the domain whose extent is larger than 1.
bool CudaEmitter::coversDomain(AffineMap point) {
  return llvm::all_of(llvm::enumerate(info.shape.domain), [&](auto dim) {
    return dim.value() == 1 || point.isFunctionOfDim(unsigned(dim.index()));
  });
}

// Nearly all traffic comes from tensors that have an element for every point of the domain. A
// thread loads 16 bytes of the widest type among them, and 8 or 4 bytes of narrower types; a warp
// still loads whole 32-byte sectors. With wider vectors, the 16-byte words of the widest type would
// lie 32 bytes apart, and each instruction would use half of every sector. Tensors that all rows
// share do not limit the width, because they are small or come from the caches.
unsigned CudaEmitter::findWidth() {
  struct Place {
    unsigned argument;
    AffineMap point;
  };
  SmallVector<Place> places;
  unsigned widest = 0, widestShared = 1;
  auto add = [&](unsigned argument, AffineMap point, bool covers) {
    if (!isInnermost(point))
      return;
    places.push_back({argument, point});
    unsigned &most = covers ? widest : widestShared;
    most = std::max(most, typeOf(argument).getElementTypeBitWidth() / 8);
  };
  for (const Access &access : info.accesses)
    add(access.input, access.point,
        coversDomain(access.point) || llvm::is_contained(access.dynamic, true));
  for (const Output &output : info.outputs)
    add(argumentOf(output), output.place, info.coversDomain(output));
  const int64_t extent = rank() == 0       ? 1
                         : info.shape.flat ? llvm::product_of(info.shape.domain)
                                           : info.shape.domain.back();
  for (unsigned width = 16 / (widest ? widest : widestShared); width > 1; width /= 2)
    if (extent % width == 0 && llvm::all_of(places, [&](const Place &place) {
          return widthFits(place.argument, place.point, width);
        }))
      return width;
  return 1;
}

//===-- Evaluation of values ----------------------------------------------------------------===//

CudaEmitter::Cache &CudaEmitter::cacheOf(const CudaValue &value) {
  if (value.innermost)
    return innerCache;
  if (!value.outer)
    return kernelCache;
  return outerPerChunk ? loadCache : outerCache;
}

CudaValue CudaEmitter::remember(Value value, AffineMap point, CudaValue made) {
  return cacheOf(made)[{value, point}] = made;
}

void CudaEmitter::startInner() {
  innerCache.clear();
  names[&innerCache].clear();
  counters["t"] = 0;
}

void CudaEmitter::startLoads(CudaChunks &to) {
  chunks = &to;
  loadCache.clear();
  names[&loadCache].clear();
}

std::string CudaEmitter::fresh(StringRef prefix) {
  return prefix.str() + std::to_string(counters[prefix.str()]++);
}

// Returns true for literals, variables and elements of vectors. They are never put into variables.
static bool isSimple(const CudaExpr &expr) {
  return expr.binding <= CudaExpr::Prefix && expr.text.find('(') == std::string::npos;
}

bool CudaEmitter::shouldName(Value value, const CudaValue &made) {
  return !isSimple(made.expr) && (!value.hasOneUse() || made.expr.text.size() > kLongExpression);
}

std::string &CudaEmitter::nameOfExpr(const CudaValue &made, const std::string &type) {
  return names[&cacheOf(made)][type + " " + made.expr.text];
}

// Returns `made` if it is simple, else a variable of its value. Prints it if its scope has none.
CudaValue CudaEmitter::name(Value value, AffineMap point, CudaValue made) {
  if (isSimple(made.expr) || isa<RankedTensorType>(value.getType()))
    return made;
  std::string type = cudaType(value.getType()), &known = nameOfExpr(made, type);
  if (known.empty()) {
    if (!made.innermost && made.outer && outerPerChunk) {
      known = perChunk(*chunks, type, fresh("r"), made.expr.text);
    } else {
      known = fresh(made.innermost ? "t" : made.outer ? "r" : "s");
      CudaText &text = made.innermost ? *innerText
                       : made.outer   ? (made.late ? *lateText : *outerText)
                                      : kernelText;
      text.line("const " + type + " " + known + " = " + made.expr.text + ";");
    }
  }
  made.expr = {known};
  return remember(value, point, made);
}

CudaValue CudaEmitter::eval(Value value, AffineMap point) {
  if (auto constant = value.getDefiningOp<arith::ConstantOp>();
      constant && !isa<RankedTensorType>(value.getType()))
    return {cudaConstant(cast<TypedAttr>(constant.getValue()))};
  for (Cache *cache : {&kernelCache, &outerCache, &hoistedCache, &loadCache, &innerCache})
    if (auto it = cache->find({value, point}); it != cache->end())
      return it->second;
  if (isa<RankedTensorType>(value.getType()))
    return evalTensor(value, point);
  CudaValue made = evalScalar(value, point);
  if (shouldName(value, made))
    return name(value, point, made);
  if (std::string &known = nameOfExpr(made, cudaType(value.getType())); !known.empty())
    made.expr = {known};
  return remember(value, point, made);
}

CudaValue CudaEmitter::evalTensor(Value value, AffineMap point) {
  if (auto input = dyn_cast<BlockArgument>(value))
    return load(input, point, {}, /*late=*/false);
  Operation *op = value.getDefiningOp();
  if (auto fill = dyn_cast<linalg::FillOp>(op))
    return eval(fill.value(), AffineMap::get(rank(), 0, {}, context));
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    auto splat = cast<SplatElementsAttr>(constant.getValue());
    return {cudaConstant(cast<TypedAttr>(splat.getSplatValue<Attribute>()))};
  }
  auto generic = cast<linalg::GenericOp>(op);
  assert(generic.getNumReductionLoops() == 0 && "reductions are computed by their pass");
  Value yielded =
      generic.getBody()->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
  CudaValue made = eval(yielded, point);
  return value.hasOneUse() ? made : name(yielded, point, made);
}

CudaValue CudaEmitter::indexAt(AffineExpr expr) {
  CudaValue made;
  made.outer = info.isOuter(AffineMap::get(rank(), 0, expr));
  made.innermost = rank() > 0 && expr.isFunctionOfDim(rank() - 1);
  made.expr = {made.innermost && width > 1 ? indexText(expr) + " + e" : indexText(expr),
               CudaExpr::Plus};
  return made;
}

CudaValue CudaEmitter::evalScalar(Value value, AffineMap point) {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    auto generic = cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
    OpOperand *operand = generic.getMatchingOpOperand(argument);
    return eval(operand->get(), readPoint(generic, operand, point));
  }
  Operation *op = value.getDefiningOp();
  if (auto extractOp = dyn_cast<tensor::ExtractOp>(op))
    return extract(extractOp, point);
  // Indices have 32 bits, but values of MLIR's type `index` have 64 bits.
  auto asIndex = [&](linalg::IndexOp index, Type type) {
    CudaValue made = indexAt(point.getResult(index.getDim()));
    made.expr = {cudaType(type) + "(" + made.expr.text + ")"};
    return made;
  };
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return asIndex(index, index.getType());
  if (isa<arith::IndexCastOp>(op))
    if (auto index = op->getOperand(0).getDefiningOp<linalg::IndexOp>())
      return asIndex(index, op->getResult(0).getType());
  return apply(op, point);
}

// Returns `value` as an operand of `user`. A value of an outer scope gets a variable.
CudaExpr CudaEmitter::inScope(Value value, AffineMap point, const CudaValue &user) {
  CudaValue made = eval(value, point);
  bool sameScope =
      made.innermost == user.innermost && made.outer == user.outer && made.late == user.late;
  return sameScope || made.innermost ? made.expr : name(value, point, made).expr;
}

// Prints an addf or subf of a product as one fma. Both ops must be in the same linalg.generic, and
// both or neither must vary along the innermost dimension. The CPU kernels follow the same rule
// (LowerKernels.cpp), which does not depend on the other ops of the kernel.
std::optional<CudaExpr> CudaEmitter::contract(Operation *op, AffineMap point,
                                              const CudaValue &made) {
  if (!isa<arith::AddFOp, arith::SubFOp>(op))
    return std::nullopt;
  for (unsigned i : {0u, 1u}) {
    auto product = op->getOperand(i).getDefiningOp<arith::MulFOp>();
    if (!product || product->getBlock() != op->getBlock())
      continue;
    if ((eval(product.getLhs(), point).innermost || eval(product.getRhs(), point).innermost) !=
        made.innermost)
      continue;
    CudaExpr x = inScope(product.getLhs(), point, made), y = inScope(product.getRhs(), point, made);
    CudaExpr z = inScope(op->getOperand(1 - i), point, made);
    if (isa<arith::SubFOp>(op))
      (i == 0 ? z : x) = cudaNegate(i == 0 ? z : x);
    return cudaFma(op->getResult(0).getType(), x, y, z);
  }
  return std::nullopt;
}

CudaValue CudaEmitter::apply(Operation *op, AffineMap point) {
  CudaValue made;
  SmallVector<Value> operands(op->getOperands());
  // For an fma, evaluates the factors, not the product: eval() of a product may print a variable.
  for (size_t i = 0; i < operands.size(); ++i) {
    auto product = operands[i].getDefiningOp<arith::MulFOp>();
    if (isa<arith::AddFOp, arith::SubFOp>(op) && product && operands[i].hasOneUse()) {
      llvm::append_range(operands, product->getOperands());
      continue;
    }
    CudaValue operand = eval(operands[i], point);
    made.innermost |= operand.innermost;
    made.outer |= operand.outer;
    made.late |= operand.late;
  }
  if (std::optional<CudaExpr> fused = contract(op, point, made)) {
    made.expr = *fused;
    return made;
  }
  SmallVector<CudaExpr> exprs;
  for (Value operand : op->getOperands())
    exprs.push_back(inScope(operand, point, made));
  made.expr = cudaApply(op, exprs);
  return made;
}

CudaValue CudaEmitter::extract(tensor::ExtractOp op, AffineMap point) {
  SmallVector<AffineExpr> exprs;
  SmallVector<std::string> dynamic;
  bool late = false;
  for (auto [dim, at] : llvm::enumerate(op.getIndices())) {
    AffineExpr expr = staticIndex(op, dim, point, info.shape.domain);
    exprs.push_back(expr ? expr : getAffineConstantExpr(0, context));
    dynamic.push_back("");
    if (expr)
      continue;
    CudaValue value = eval(at, point);
    late |= value.late;
    std::string extent = std::to_string(op.getTensor().getType().getDimSize(dim));
    dynamic.back() = "clampIndex(" + value.expr.text + ", " + extent + ")";
    // If outerPerChunk is true, vectors differ in this index. So the address contains its text.
    if (value.outer && !outerPerChunk) {
      std::string index = std::exchange(dynamic.back(), fresh("row"));
      (late ? *lateText : *outerText).line("const u32 " + dynamic.back() + " = " + index + ";");
    }
  }
  return load(cast<BlockArgument>(op.getTensor()), AffineMap::get(rank(), 0, exprs, context),
              dynamic, late);
}

//===-- Addresses, loads and stores ---------------------------------------------------------===//

// Returns the loop index of `dim` as C++ text. `column` is the number of an element within its row.
std::string CudaEmitter::indexOfDim(unsigned dim) {
  if (dim < outerDims.size())
    return outerDims[dim];
  const bool innermost = dim + 1 == rank();
  const int64_t below = llvm::product_of(ArrayRef<int64_t>(info.shape.domain).drop_front(dim + 1));
  std::string text = innermost ? column : column + " / " + std::to_string(below);
  if (dim <= info.outerDims()) // no dimension of the row precedes it, so no remainder is needed
    return text;
  return (innermost ? text : "(" + text + ")") + " % " + std::to_string(info.shape.domain[dim]);
}

// Indices are never negative, so floordiv and mod are C++'s / and %.
std::string CudaEmitter::indexText(AffineExpr expr) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return std::to_string(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return indexOfDim(dim.getPosition());
  auto binary = cast<AffineBinaryOpExpr>(expr);
  std::string a = indexText(binary.getLHS()), b = indexText(binary.getRHS());
  auto wrap = [](AffineExpr expr, const std::string &text) {
    return isa<AffineBinaryOpExpr>(expr) || text.find(' ') != std::string::npos ? "(" + text + ")"
                                                                                : text;
  };
  if (expr.getKind() == AffineExprKind::Add) {
    if (auto constant = dyn_cast<AffineConstantExpr>(binary.getRHS()))
      if (constant.getValue() < 0)
        return a + " - " + std::to_string(-constant.getValue());
    auto times = dyn_cast<AffineBinaryOpExpr>(binary.getLHS());
    // MLIR represents c - i as i * -1 + c.
    if (times && times.getKind() == AffineExprKind::Mul)
      if (auto factor = dyn_cast<AffineConstantExpr>(times.getRHS());
          factor && factor.getValue() == -1)
        return b + " - " + wrap(times.getLHS(), indexText(times.getLHS()));
    return a + " + " + b;
  }
  const char *sign = expr.getKind() == AffineExprKind::Mul   ? " * "
                     : expr.getKind() == AffineExprKind::Mod ? " % "
                                                             : " / ";
  return wrap(binary.getLHS(), a) + sign + wrap(binary.getRHS(), b);
}

std::string CudaEmitter::address(unsigned argument, RankedTensorType type, AffineMap point,
                                 ArrayRef<std::string> dynamic) {
  std::string text = nameOf(argument);
  if (info.shape.flat && rank() > 0 && point == info.identity)
    return text + " + " + column;
  // Offsets have 32 bits if the tensor, with gaps between its rows, spans fewer than 2^31 elements.
  bool wide = type.getRank() > 0 &&
              type.getDimSize(0) * info.strideOf(argument, type, 0) >= int64_t(1) << 31;
  for (unsigned i = 0; i < point.getNumResults(); ++i) {
    bool fromMemory = i < dynamic.size() && !dynamic[i].empty();
    auto constant = dyn_cast<AffineConstantExpr>(point.getResult(i));
    int64_t stride = info.strideOf(argument, type, i);
    if (constant && !fromMemory) {
      if (constant.getValue() != 0)
        text += " + " + std::to_string(constant.getValue() * stride);
      continue;
    }
    std::string at = fromMemory ? dynamic[i] : indexText(point.getResult(i));
    bool compound = !fromMemory && (isa<AffineBinaryOpExpr>(point.getResult(i)) ||
                                    at.find(' ') != std::string::npos);
    if (wide && stride != 1)
      at = "u64(" + at + ")";
    else if (compound && stride != 1)
      at = "(" + at + ")";
    text += " + " + at + (stride == 1 ? "" : " * " + std::to_string(stride));
  }
  return text;
}

std::string CudaEmitter::vectorType(Type element) {
  return "Vec<" + cudaType(element) + ", " + std::to_string(width) + ">";
}

std::string CudaEmitter::perChunk(CudaChunks &to, const std::string &type, const std::string &name,
                                  const std::string &expr) {
  if (to.alone()) {
    to.loads.line("const " + type + " " + name + " = " + expr + ";");
    return name;
  }
  bool many = to.count > 1;
  to.declarations.line(type + " " + name + (many ? "[" + std::to_string(to.count) + "];" : ";"));
  std::string element = many ? name + "[k]" : name;
  to.loads.line(element + " = " + expr + ";");
  return element;
}

CudaValue CudaEmitter::load(BlockArgument input, AffineMap point, ArrayRef<std::string> dynamic,
                            bool late) {
  CudaValue made;
  made.late = late;
  const bool keep = llvm::all_of(dynamic, [](auto &at) { return at.empty(); });
  made.outer = !info.shape.flat && (!keep || info.isOuter(point));
  made.innermost = isInnermost(point);
  unsigned number = input.getArgNumber();
  auto type = cast<RankedTensorType>(input.getType());
  std::string from = address(number, type, point, dynamic), name = fresh(nameOf(number) + "v");
  std::string element = cudaType(type.getElementType());
  const Key key(input, point);
  if (made.innermost) {
    bool isHoisted = hoisted && !made.outer;
    lateLoad |= late;
    const bool ofRow = made.outer || info.outerDims() == 0;
    if (ofRow)
      rowBytesLoaded += width * type.getElementTypeBitWidth() / 8;
    CudaChunks &to = isHoisted ? *hoisted : *chunks;
    std::string vector = perChunk(
        to, vectorType(type.getElementType()), name,
        ofRow ? vectorOfRow(keep ? key : Key(), number, to.count > 1 ? name + "[k]" : name, from)
              : "load<" + std::to_string(width) + ">(" + from + ")");
    made.expr = {elementOf(vector)};
    if (keep)
      (isHoisted ? hoistedCache : loadCache)[key] = made;
    return made;
  }
  std::string expr = "loadOne(" + from + ")";
  if (made.outer && outerPerChunk) {
    made.expr = {perChunk(*chunks, element, name, expr)};
    if (keep)
      loadCache[key] = made;
    return made;
  }
  CudaText &text = !made.outer ? kernelText : late ? *lateText : *outerText;
  text.line("const " + element + " " + name + " = " + expr + ";");
  made.expr = {name};
  if (keep)
    (made.outer ? outerCache : kernelCache)[key] = made;
  return made;
}

//===-- Parts of reductions -----------------------------------------------------------------===//

CudaExpr CudaEmitter::combine(const Reduction &reduction, const std::string &sum, AffineMap point) {
  auto product = reduction.term.getDefiningOp<arith::MulFOp>();
  Operation *op = reduction.combiner;
  CudaValue inner;
  inner.innermost = inner.outer = true;
  if (isa<arith::AddFOp>(op) && product && product->getBlock() == op->getBlock() &&
      (eval(product.getLhs(), point).innermost || eval(product.getRhs(), point).innermost))
    return cudaFma(op->getResult(0).getType(), inScope(product.getLhs(), point, inner),
                   inScope(product.getRhs(), point, inner), {sum});
  return cudaApply(op, {CudaExpr{sum}, inScope(reduction.term, point, inner)});
}

std::string CudaEmitter::identityOf(const Reduction &reduction) {
  return cudaConstant(codegen::identityOf(reduction)).text;
}

std::string CudaEmitter::withInit(const Reduction &reduction, const std::string &sum) {
  std::string init = isa<RankedTensorType>(reduction.init.getType())
                         ? eval(reduction.init, reduction.point).expr.text
                         : eval(reduction.init, AffineMap::get(rank(), 0, {}, context)).expr.text;
  if (init == identityOf(reduction))
    return sum;
  return cudaApply(reduction.combiner, {CudaExpr{init, CudaExpr::Choice}, CudaExpr{sum}}).text;
}

//===-- Printing of loops -------------------------------------------------------------------===//

void CudaEmitter::loopOverChunks(CudaText &to, const CudaChunks &chunks, const CudaText &body) {
  if (body.lines.empty())
    return;
  CudaText inside;
  chunks.index.print(inside, body, chunks.guard);
  if (chunks.guard.empty())
    inside.append(body);
  else
    inside.block("if (" + chunks.guard + ")", body);
  if (chunks.count == 1)
    return to.append(inside);
  to.line("#pragma unroll");
  to.block("for (u32 k = 0; k < " + Twine(chunks.count) + "; ++k)", inside);
}

void CudaEmitter::printLoads(CudaText &to, const CudaChunks &chunks) {
  to.append(chunks.declarations);
  loopOverChunks(to, chunks, chunks.loads);
}

CudaIndex CudaEmitter::shareIndex(CudaChunks &chunks) {
  return chunks.count == 1 ? std::exchange(chunks.index, {}) : CudaIndex();
}

void CudaEmitter::loopOverElements(CudaText &to, const CudaText &body) {
  if (body.lines.empty())
    return;
  if (width == 1)
    return to.append(body);
  to.line("#pragma unroll");
  to.block("for (u32 e = 0; e < " + Twine(width) + "; ++e)", body);
}

void CudaEmitter::storeOutputs(CudaText &chunk, CudaText &elements, ArrayRef<unsigned> outputs) {
  CudaText declarations, stores;
  for (unsigned number : outputs) {
    const Output &output = info.outputs[number];
    RankedTensorType type = typeOf(argumentOf(output));
    std::string vector = nameOf(argumentOf(output)) + "v" +
                         (output.place == output.point ? "" : std::to_string(number));
    declarations.line(vectorType(type.getElementType()) + " " + vector + ";");
    CudaValue value = eval(output.value, output.point);
    elements.line(elementOf(vector) + " = " + value.expr.text + ";");
    stores.line("store<" + Twine(width) + ">(" + address(argumentOf(output), type, output.place) +
                ", " + vector + ");");
  }
  chunk.append(declarations);
  loopOverElements(chunk, elements);
  chunk.append(stores);
}

bool CudaEmitter::readsWhatOthersWrite() {
  const auto results = llvm::seq(region.getTerminator()->getNumOperands());
  return llvm::any_of(info.accesses, [&](const Access &access) {
    return !isInnermost(access.point) && llvm::any_of(results, [&](unsigned result) {
      return mayShareBuffer(info, region, result, access.input);
    });
  });
}

CudaKernel CudaEmitter::finish(uint32_t blocks, uint32_t threads, uint32_t sharedBytes,
                               const CudaText &body, const std::string &note) {
  CudaKernel result;
  // The prefix avoids conflicts with CUDA's own functions, such as norm and add.
  result.name = "lmc_" + kernel.getSymName().str();
  result.hero = kern::stringifyHero(info.hero).str();
  result.grid = {blocks, 1, 1};
  result.threads = threads;
  result.sharedBytes = sharedBytes;
  result.bytes = {info.shape.readBytes, info.shape.writtenBytes};
  result.again = again;

  CudaText head;
  std::string ops;
  if (auto attr = kernel.getSourceOps())
    for (Attribute op : *attr)
      ops += (ops.empty() ? " of " : ", ") + cast<StringAttr>(op).getValue().str();
  head.line("// " + kernel.getSymName() + ": " + result.hero + ops);
  head.line("//");
  for (const std::string &formula : cudaFormulas(kernel))
    head.line("//   " + formula);
  head.line("//");
  unsigned arguments = inputs + region.getTerminator()->getNumOperands();
  for (unsigned i = 0; i < arguments; ++i) {
    RankedTensorType type = typeOf(i);
    std::string text = "// " + nameOf(i) + ": " + cudaType(type.getElementType()) + " [";
    for (auto [d, extent] : llvm::enumerate(type.getShape()))
      text += (d ? ", " : "") + std::to_string(extent);
    text += "]";
    if (i < info.argPitches.size() && info.argPitches[i] != 0)
      text += ", rows of " + std::to_string(type.getNumElements() / info.argRows[i]) +
              " elements begin " + std::to_string(info.argPitches[i]) + " apart";
    head.line(text);
  }
  head.line("//");
  head.line("// " + note);
  auto more = [](uint64_t bytes) {
    return bytes ? " (and " + std::to_string(bytes) + " again)" : "";
  };
  head.line("// Reads " + Twine(result.bytes.read) + " bytes" + more(again.read) + " and writes " +
            Twine(result.bytes.written) + more(again.written) + ". Launch: " + Twine(blocks) +
            " blocks of " + Twine(threads) + " threads, " + Twine(sharedBytes) +
            " bytes of shared memory.");
  bool reduces = isColumn || info.hero == kern::Hero::RowReduction;
  head.line(reduces ? "#include \"lmc/reduce.cuh\"" : "#include \"lmc/math.cuh\"");
  head.line("#include \"lmc/vector_io.cuh\"");
  head.line("");
  head.line("using namespace lmc;");
  head.line("");

  head.line("extern \"C\" __global__ void __launch_bounds__(" + Twine(threads) + ")");
  std::vector<std::string> parameters;
  for (unsigned i = 0; i < arguments; ++i)
    parameters.push_back((i < inputs ? "const " : "") + cudaType(typeOf(i).getElementType()) +
                         " *" + nameOf(i));
  CudaText function = kernelText;
  function.append(body);
  head.block(result.name + "(" + llvm::join(parameters, ", ") + ")", function);
  result.source = llvm::join(head.lines, "\n") + "\n";
  return result;
}

} // namespace lmc::codegen
