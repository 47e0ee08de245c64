#include "dialects/lm/TensorTypes.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace lmc;

Value lmc::reshape(OpBuilder &b, Location loc, Value value, ArrayRef<int64_t> shape) {
  RankedTensorType type = tensorTypeOf(value);
  if (type.getShape() == shape)
    return value;
  auto oneGroup = [](size_t rank) {
    SmallVector<ReassociationIndices> groups;
    if (rank)
      groups.push_back(llvm::to_vector<2>(llvm::seq<int64_t>(0, int64_t(rank))));
    return groups;
  };
  RankedTensorType flat = type.clone(ArrayRef<int64_t>{type.getNumElements()});
  if (type.getRank() == 0)
    value = tensor::ExpandShapeOp::create(b, loc, flat, value, oneGroup(0));
  else if (type.getRank() > 1)
    value = tensor::CollapseShapeOp::create(b, loc, flat, value, oneGroup(type.getRank()));
  if (shape.empty())
    value = tensor::CollapseShapeOp::create(b, loc, type.clone(shape), value, oneGroup(0));
  else if (shape.size() > 1)
    value = tensor::ExpandShapeOp::create(b, loc, type.clone(shape), value, oneGroup(shape.size()));
  return value;
}

Value lmc::slice(OpBuilder &b, Location loc, RankedTensorType type, Value source,
                 ArrayRef<int64_t> offsets) {
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1));
  return tensor::ExtractSliceOp::create(
      b, loc, type, source, getAsIndexOpFoldResult(b.getContext(), offsets),
      getAsIndexOpFoldResult(b.getContext(), type.getShape()), strides);
}

Value lmc::sliceRows(OpBuilder &b, Location loc, Value source, int64_t offset, int64_t count) {
  RankedTensorType type = tensorTypeOf(source);
  if (offset == 0 && count == type.getDimSize(0))
    return source;
  SmallVector<int64_t> offsets(type.getRank(), 0);
  offsets[0] = offset;
  return slice(b, loc, resized(type, 0, count), source, offsets);
}

Value lmc::insert(OpBuilder &b, Location loc, Value part, Value whole, ArrayRef<int64_t> offsets) {
  ArrayRef<int64_t> shape = tensorTypeOf(part).getShape();
  SmallVector<OpFoldResult> strides(shape.size(), b.getIndexAttr(1));
  return tensor::InsertSliceOp::create(b, loc, part, whole,
                                       getAsIndexOpFoldResult(b.getContext(), offsets),
                                       getAsIndexOpFoldResult(b.getContext(), shape), strides);
}

Value lmc::insertRows(OpBuilder &b, Location loc, Value part, Value whole, int64_t offset) {
  if (part.getType() == whole.getType())
    return part;
  SmallVector<int64_t> offsets(tensorTypeOf(part).getRank(), 0);
  offsets[0] = offset;
  return insert(b, loc, part, whole, offsets);
}

lm::VariableOp lmc::parameterOf(lm::LoadOp load, const SymbolTable &symbols) {
  auto variable = symbols.lookup<lm::VariableOp>(load.getVariable());
  std::optional<StringRef> parameter = variable.getParameter();
  return parameter ? symbols.lookup<lm::VariableOp>(*parameter) : variable;
}

LogicalResult lmc::padParameter(lm::VariableOp parameter, unsigned dim, int64_t size) {
  if (parameter.getParts())
    return parameter.emitOpError("has parts already");
  MLIRContext *context = parameter.getContext();
  const int64_t rows = tensorTypeOf(parameter).getDimSize(0),
                old = tensorTypeOf(parameter).getDimSize(dim);
  SmallVector<Attribute> parts{lm::PartAttr::get(context, parameter.getSymNameAttr(), rows,
                                                 parameter.getInit(), dim == 0 ? 0 : old)};
  if (dim == 0)
    parts.push_back(lm::PartAttr::get(context, StringAttr::get(context), size - old,
                                      lm::InitAttr::get(context, lm::InitKind::Zeros)));
  parameter.setPartsAttr(ArrayAttr::get(context, parts));
  for (auto state : parameter->getParentOfType<ModuleOp>().getOps<lm::VariableOp>())
    if (state == parameter || state.getParameter() == parameter.getSymName())
      state.setType(resized(tensorTypeOf(state), dim, size));
  return success();
}
