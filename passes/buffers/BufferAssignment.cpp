#include "passes/buffers/BufferAssignment.h"

using namespace mlir;
using namespace lmc;

static constexpr char kBuffers[] = "plan.buffers", kViews[] = "plan.views",
                      kCopies[] = "plan.copies", kScratch[] = "plan.scratch";

ArrayRef<BufferAssignment::Copy> BufferAssignment::copiesBefore(Operation *op) const {
  auto it = copies.find(op);
  return it == copies.end() ? ArrayRef<Copy>() : ArrayRef<Copy>(it->second);
}

void BufferAssignment::attachTo(func::FuncOp function) const {
  MLIRContext *context = function.getContext();
  Builder b(context);
  auto attributeOf = [&](const BufferView &view) {
    return plan_ir::ViewAttr::get(context, view.buffer, view.offset, view.rows, view.pitch);
  };
  SmallVector<Attribute> list;
  for (const Buffer &buffer : buffers) {
    const bool isUsed = buffer.first <= buffer.last;
    list.push_back(plan_ir::BufferAttr::get(context, buffer.bytes, isUsed ? buffer.first : 0,
                                            isUsed ? buffer.last : -1, buffer.category,
                                            buffer.variable));
  }
  function->setAttr(kBuffers, b.getArrayAttr(list));
  for (Operation &op : function.getBody().front()) {
    list.clear();
    for (Value result : op.getResults())
      list.push_back(attributeOf(view(result)));
    if (!list.empty())
      op.setAttr(kViews, b.getArrayAttr(list));
    list.clear();
    for (const Copy &copy : copiesBefore(&op))
      list.push_back(plan_ir::BufferCopyAttr::get(context, attributeOf(copy.from),
                                                  attributeOf(copy.to), copy.type));
    if (!list.empty())
      op.setAttr(kCopies, b.getArrayAttr(list));
    if (auto it = scratch.find(&op); it != scratch.end())
      op.setAttr(kScratch,
                 plan_ir::ScratchAttr::get(context, it->second.buffer, it->second.type));
  }
}

FailureOr<BufferAssignment> BufferAssignment::readFrom(func::FuncOp function) {
  auto buffers = function->getAttrOfType<ArrayAttr>(kBuffers);
  if (!buffers)
    return function.emitError("has no buffers; plan-assign-buffers runs first");
  auto viewOf = [](plan_ir::ViewAttr view) {
    return BufferView{view.getBuffer(), view.getOffset(), view.getRows(), view.getPitch()};
  };
  BufferAssignment assignment;
  for (auto buffer : buffers.getAsRange<plan_ir::BufferAttr>())
    assignment.buffers.push_back({buffer.getBytes(), buffer.getFirst(), buffer.getLast(),
                                  buffer.getCategory(), buffer.getVariable().str()});
  for (Operation &op : function.getBody().front()) {
    if (auto views = op.getAttrOfType<ArrayAttr>(kViews))
      for (auto [result, view] :
           llvm::zip(op.getResults(), views.getAsRange<plan_ir::ViewAttr>()))
        assignment.views[result] = viewOf(view);
    if (auto copies = op.getAttrOfType<ArrayAttr>(kCopies))
      for (auto copy : copies.getAsRange<plan_ir::BufferCopyAttr>())
        assignment.copies[&op].push_back(
            {viewOf(copy.getFrom()), viewOf(copy.getTo()), copy.getType()});
    if (auto scratch = op.getAttrOfType<plan_ir::ScratchAttr>(kScratch))
      assignment.scratch[&op] = {scratch.getBuffer(), scratch.getType()};
  }
  return assignment;
}

FailureOr<BufferAssignment *> BufferAssignments::of(func::FuncOp function) {
  auto [known, isNew] = functions.try_emplace(function);
  if (isNew) {
    FailureOr<BufferAssignment> read = BufferAssignment::readFrom(function);
    if (failed(read)) {
      functions.erase(known);
      return failure();
    }
    known->second = std::move(*read);
  }
  return &known->second;
}
