#include "dialects/lm/Optimizer.h"

#include "dialects/lm/Lm.h"

using namespace mlir;
using namespace lmc::lm;

#include "dialects/lm/Optimizer.cpp.inc"

//===-- State -------------------------------------------------------------------------------===//

std::string lmc::lm::stateName(StringRef parameter, VariableKind kind) {
  if (kind == VariableKind::Parameter)
    return parameter.str();
  StringRef suffix = kind == VariableKind::ComputeCopy ? "compute"
                     : kind == VariableKind::Gradient  ? "grad"
                                                       : stringifyVariableKind(kind);
  return (parameter + "." + suffix).str();
}

ParameterState::ParameterState(ModuleOp module) : context(module.getContext()) {
  for (auto variable : module.getOps<VariableOp>())
    insert(variable);
}

void ParameterState::insert(VariableOp variable) {
  if (variable.getKind() == VariableKind::Parameter)
    variables[{variable.getSymNameAttr(), VariableKind::Parameter}] = variable;
  else if (StringAttr parameter = variable.getParameterAttr())
    variables[{parameter, variable.getKind()}] = variable;
}

VariableOp ParameterState::find(StringRef parameter, VariableKind kind) const {
  return llvm::cast_if_present<VariableOp>(
      variables.lookup({StringAttr::get(context, parameter), kind}));
}

//===-- Parameters --------------------------------------------------------------------------===//

SteppedParameter lmc::lm::steppedParameter(VariableOp parameter) {
  const GroupAttr group = parameter.getGroupAttr();
  SteppedParameter stepped{cast<RankedTensorType>(parameter.getType()),
                           {},
                           parameter.getHidden(),
                           group && group.getF32Moments()};
  if (!parameter.getParts())
    stepped.partRows.push_back(stepped.type.getRank() ? stepped.type.getDimSize(0) : 1);
  else
    for (auto part : parameter.getPartsAttr().getAsRange<PartAttr>())
      if (!part.getName().empty())
        stepped.partRows.push_back(part.getRows());
  return stepped;
}

SmallVector<Attribute> lmc::lm::matricesOf(VariableOp parameter) {
  SmallVector<Attribute> matrices;
  auto add = [&](int64_t offset, int64_t rows, int64_t columns, int64_t fanIn) {
    matrices.push_back(MatrixAttr::get(parameter.getContext(), offset, rows, columns, fanIn));
  };
  // Adds to `matrices` the matrices that are groups of columns of one weight [in, out].
  auto addTransposed = [&](int64_t offset, RankedTensorType type, ArrayRef<int64_t> columns) {
    const int64_t rows = type.getDimSize(0), all = type.getDimSize(1);
    int64_t column = 0;
    for (int64_t count : columns) {
      matrices.push_back(MatrixAttr::get(parameter.getContext(), offset, rows, count, rows, column,
                                         count == all ? 0 : all, true));
      column += count;
    }
  };
  if (parameter.getSharded()) {
    for (auto tensor : parameter.getShardedAttr().getAsRange<ShardedAttr>())
      if (RankedTensorType type = tensor.getType(); tensor.getColumns())
        addTransposed(tensor.getOffset(), type, tensor.getColumns());
      else if (type.getRank() == 2)
        add(tensor.getOffset(), type.getDimSize(0),
            tensor.getPitch() ? tensor.getPitch() : type.getDimSize(1), type.getDimSize(1));
    return matrices;
  }
  auto type = cast<RankedTensorType>(parameter.getType());
  if (type.getRank() != 2)
    return matrices;
  const int64_t columns = type.getDimSize(1);
  if (std::optional<ArrayRef<int64_t>> counts = parameter.getColumns()) {
    addTransposed(0, type, *counts);
    return matrices;
  }
  if (!parameter.getParts()) {
    add(0, type.getDimSize(0), columns, columns);
    return matrices;
  }
  int64_t row = 0;
  for (auto part : parameter.getPartsAttr().getAsRange<PartAttr>()) {
    if (!part.getName().empty())
      add(row * columns, part.getRows(), columns, part.getColumns() ? part.getColumns() : columns);
    row += part.getRows();
  }
  return matrices;
}

//===-- The interface -----------------------------------------------------------------------===//

const OptimizerOpInterface::Concept *OptimizerOpInterface::lookup(MLIRContext *context,
                                                                  StringRef type) {
  auto name = RegisteredOperationName::lookup(("lm." + type).str(), context);
  return name ? name->getInterface<OptimizerOpInterface>() : nullptr;
}

static SmallVector<OptimizerState> statesOf(OptimizerOpInterface op) {
  return op.getStates(cast<RankedTensorType>(op->getOperand(0).getType()));
}

SmallVector<OptimizerUse> OptimizerOpInterface::getUses() {
  Operation *op = getOperation();
  SmallVector<OptimizerUse> uses{{VariableKind::Parameter, op->getOperand(0), op->getResult(0)},
                                 {VariableKind::Gradient, op->getOperand(1), Value()}};
  SmallVector<OptimizerState> states = statesOf(*this);
  for (auto [i, state] : llvm::enumerate(states))
    uses.push_back({state.kind, op->getOperand(unsigned(2 + i)), op->getResult(unsigned(1 + i))});
  if (unsigned copy = unsigned(3 + states.size()); copy < op->getNumResults())
    uses.push_back({VariableKind::ComputeCopy, Value(), op->getResult(copy)});
  return uses;
}

OperandRange OptimizerOpInterface::getScalarOperands() {
  return getOperation()->getOperands().drop_front(2 + statesOf(*this).size());
}

Value OptimizerOpInterface::getUpdateSums() {
  return getOperation()->getResult(unsigned(1 + statesOf(*this).size()));
}

Value OptimizerOpInterface::getParameterSums() {
  return getOperation()->getResult(unsigned(2 + statesOf(*this).size()));
}

LogicalResult lmc::lm::verifyOptimizer(Operation *op) {
  auto optimizer = cast<OptimizerOpInterface>(op);
  size_t states = statesOf(optimizer).size();
  ArrayRef<OptimizerScalar> scalars = optimizer.getScalars();
  size_t most = 3 + states + scalars.size(), operands = op->getNumOperands();
  size_t decays = size_t(llvm::count_if(scalars, [](auto &scalar) { return scalar.decays; }));
  if (operands != most && operands != most - decays)
    return op->emitOpError("has ") << operands << " operands where its states and scalars are "
                                   << most;
  if (op->getNumResults() != 3 + states && op->getNumResults() != 4 + states)
    return op->emitOpError("has ") << op->getNumResults() << " results for " << states << " states";
  return success();
}
