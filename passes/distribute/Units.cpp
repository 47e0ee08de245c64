#include "passes/distribute/Units.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace lmc;
using dist::Axis;

// A variable of zeros, with which gaps in a unit are filled. It is as long as the longest gap.
static constexpr StringLiteral kZeros = "dist.zeros";

bool lmc::movesElements(Operation *op) { return isa<tensor::TensorDialect>(op->getDialect()); }

// Collects the views of `value` and the ops that read the value or one of its views.
static void collect(Value value, SetVector<Operation *> &views, SetVector<Operation *> &readers) {
  for (Operation *user : value.getUsers())
    if (!movesElements(user))
      readers.insert(user);
    else if (views.insert(user))
      collect(user->getResult(0), views, readers);
}

Uses lmc::usesOf(Value value) {
  SetVector<Operation *> views, readers;
  collect(value, views, readers);
  Uses uses{views.takeVector(), readers.takeVector()};
  for (auto *ops : {&uses.views, &uses.readers})
    llvm::sort(*ops, [](Operation *x, Operation *y) { return x->isBeforeInBlock(y); });
  return uses;
}

Value lmc::scaleOf(OpBuilder &b, Location loc, Value scales, int64_t number) {
  Value all = reshape(b, loc, scales, {tensorTypeOf(scales).getNumElements()});
  return reshape(b, loc, sliceRows(b, loc, all, number * kScalePitch, 1), {});
}

Value lmc::loadShardRank(OpBuilder &b, Location loc, dist::MeshOp mesh, SymbolTable &symbols,
                         Type type) {
  constexpr StringLiteral kName = "run.shard_rank";
  if (!symbols.lookup(kName)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(mesh);
    auto variable = lm::VariableOp::create(b, mesh.getLoc(), kName, lm::VariableKind::Scalar, type,
                                           lm::InitAttr::get(b.getContext(), lm::InitKind::None));
    variable.setStepValue(lm::StepValue::ShardRank);
    symbols.insert(variable);
  }
  return lm::LoadOp::create(b, loc, type, kName);
}

// Returns the axis along which a unit is divided. `groups` is the unit's UnitGradients::groups.
static Axis sharingAxis(int64_t groups) { return groups > 1 ? Axis::ExpertShard : Axis::Shard; }

Value lmc::gatherPieces(OpBuilder &b, Location loc, dist::MeshOp mesh, Value piece, int64_t groups,
                        int64_t layer) {
  return createCollective<dist::AllGatherOp>(b, loc, mesh, sharingAxis(groups), piece,
                                             /*backward=*/false, layer);
}

//===-- Units -------------------------------------------------------------------------------===//

Attribute UnitGradients::toAttribute(Builder &b) const {
  SmallVector<StringRef> names(members.begin(), members.end());
  SmallVector<NamedAttribute> fields{b.getNamedAttr("members", b.getStrArrayAttr(names)),
                                     b.getNamedAttr("offsets", b.getDenseI64ArrayAttr(offsets)),
                                     b.getNamedAttr("elements", b.getI64IntegerAttr(elements)),
                                     b.getNamedAttr("piece", b.getStringAttr(piece)),
                                     b.getNamedAttr("layer", b.getI64IntegerAttr(layer))};
  if (counts)
    fields.push_back(b.getNamedAttr("counts", b.getUnitAttr()));
  if (groups > 1)
    fields.push_back(b.getNamedAttr("groups", b.getI64IntegerAttr(groups)));
  return b.getDictionaryAttr(fields);
}

UnitGradients UnitGradients::fromAttribute(Attribute attribute) {
  auto fields = cast<DictionaryAttr>(attribute);
  UnitGradients unit;
  for (StringRef name : fields.getAs<ArrayAttr>("members").getAsValueRange<StringAttr>())
    unit.members.push_back(name.str());
  unit.offsets = fields.getAs<DenseI64ArrayAttr>("offsets").asArrayRef().vec();
  unit.elements = fields.getAs<IntegerAttr>("elements").getInt();
  unit.piece = fields.getAs<StringAttr>("piece").str();
  unit.layer = fields.getAs<IntegerAttr>("layer").getInt();
  unit.counts = fields.contains("counts");
  if (auto groups = fields.getAs<IntegerAttr>("groups"))
    unit.groups = groups.getInt();
  return unit;
}

//===-- Sums --------------------------------------------------------------------------------===//

std::optional<Type> lmc::payloadType(StringRef name, MLIRContext *context) {
  return llvm::StringSwitch<std::optional<Type>>(name)
      .Case("f32", Type())
      .Case("bf16", BFloat16Type::get(context))
      .Case("f16", Float16Type::get(context))
      .Default(std::nullopt);
}

GradientReducer::GradientReducer(ModuleOp module, Type payload)
    : symbols(module), mesh(symbols.lookup<dist::MeshOp>(kMesh)), payload(payload) {}

Value GradientReducer::zeros(OpBuilder &b, int64_t elements, Type element) {
  auto variable = symbols.lookup<lm::VariableOp>(kZeros);
  auto type = RankedTensorType::get({elements}, element);
  if (!variable) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointAfter(mesh);
    variable = lm::VariableOp::create(b, mesh.getLoc(), kZeros, lm::VariableKind::Table, type,
                                      lm::InitAttr::get(b.getContext(), lm::InitKind::Zeros));
    symbols.insert(variable);
  }
  auto known = tensorTypeOf(variable);
  if (known.getDimSize(0) < elements) {
    variable.setType(type);
    mesh->getParentOp()->walk([&](lm::LoadOp load) {
      if (load.getVariable() == kZeros)
        load.getResult().setType(type);
    });
    known = type;
  }
  Value all = lm::LoadOp::create(b, mesh.getLoc(), known, kZeros);
  return slice(b, mesh.getLoc(), type, all, {0});
}

// Returns the vector that contains all `values` at the offsets of the unit's members.
Value GradientReducer::join(OpBuilder &b, const UnitGradients &unit, ArrayRef<Value> values) {
  Location loc = values.front().getLoc();
  Type element = getElementTypeOrSelf(values.front());
  Value whole = tensor::EmptyOp::create(b, loc, {unit.elements}, element);
  int64_t end = 0;
  auto append = [&](Value part, int64_t offset) {
    whole = insert(b, loc, part, whole, {offset});
    end = offset + tensorTypeOf(part).getDimSize(0);
  };
  auto pad = [&](int64_t until) {
    if (until > end)
      append(zeros(b, until - end, element), end);
  };
  for (auto [offset, value] : llvm::zip(unit.offsets, values)) {
    pad(offset);
    append(reshape(b, loc, value, {tensorTypeOf(value).getNumElements()}), offset);
  }
  pad(unit.elements);
  return whole;
}

// Returns the largest absolute value of the gradients of all ranks.
Value GradientReducer::largest(OpBuilder &b, const UnitGradients &unit, Value gradients) {
  Location loc = gradients.getLoc();
  auto maximum = [&](Value x) -> Value {
    return lm::MaxAbsOp::create(b, loc, RankedTensorType::get({}, b.getF32Type()), x,
                                /*backward=*/true, unit.layer);
  };
  Value all = reshape(b, loc, maximum(gradients), {1});
  for (Axis axis : {Axis::Shard, Axis::Replicate})
    all =
        createCollective<dist::AllGatherOp>(b, loc, mesh, axis, all, /*backward=*/true, unit.layer);
  return maximum(all);
}

SmallVector<Value> GradientReducer::reduce(OpBuilder &b, const UnitGradients &unit,
                                           ArrayRef<Value> values) {
  Location loc =
      NameLoc::get(b.getStringAttr(unit.piece.empty() ? "gradients" : "gradients/" + unit.piece));
  Type element = getElementTypeOrSelf(values.front());
  auto piece = unit.piece.empty() ? lm::VariableOp() : symbols.lookup<lm::VariableOp>(unit.piece);
  Value sum = join(b, unit, values);
  // The sum becomes a matrix, so that kernels work row by row.
  constexpr int64_t kColumns = 256;
  if (unit.elements % kColumns == 0)
    sum = reshape(b, loc, sum, {unit.elements / kColumns, kColumns});
  const bool isRounded = payload && element.isF32() && !unit.counts;
  Value scale; // the largest absolute gradient, which decides the scale of f16
  auto cast = [&](Type to) {
    auto type = tensorTypeOf(sum).clone(to);
    const int64_t ranks = mesh.ranksAlong(Axis::Shard) * mesh.ranksAlong(Axis::Replicate);
    sum = scale ? lm::ScaledCastOp::create(b, loc, type, sum, scale, uint64_t(ranks),
                                           /*backward=*/true, unit.layer)
                      .getResult()
                : lm::CastOp::create(b, loc, type, sum, /*backward=*/true, unit.layer).getResult();
  };
  if (isRounded && payload.isF16())
    scale = largest(b, unit, sum);
  if (isRounded)
    cast(payload);
  if (piece)
    sum = createCollective<dist::ReduceScatterOp>(b, loc, mesh, sharingAxis(unit.groups), sum,
                                                  /*backward=*/true, unit.layer);
  sum = createCollective<dist::AllReduceOp>(b, loc, mesh, Axis::Replicate, sum,
                                            /*backward=*/true, unit.layer);
  if (isRounded)
    cast(element);
  if (piece)
    return {reshape(b, loc, sum, tensorTypeOf(piece).getShape())};
  sum = reshape(b, loc, sum, {unit.elements});
  SmallVector<Value> parts;
  for (auto [offset, value] : llvm::zip(unit.offsets, values)) {
    auto type = tensorTypeOf(value);
    parts.push_back(
        reshape(b, loc, sliceRows(b, loc, sum, offset, type.getNumElements()), type.getShape()));
  }
  return parts;
}
