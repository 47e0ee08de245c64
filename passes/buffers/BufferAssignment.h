// Decides which values of a function share bytes, and computes the live range of each buffer.
//
// A value is a view of a buffer (BufferView.h). Two values share a buffer if
// * one is a slice (rows, columns) or a reshape of the other;
// * one is inserted into the other (it is then computed in its final place);
// * one is an accumulator, and the other is the result of the op that adds to it;
// * one is stored to a variable (it is then computed in the variable's bytes; see StatePlaces.h);
// * a kernel writes one over the other, which is the kernel's input and which no later op reads.
//
// If an op would read wrong bytes in a shared buffer, or an op of a library would get spaced runs
// that it does not support, a copy is recorded instead.
#pragma once

#include "dialects/plan/Plan.h"
#include "passes/buffers/BufferView.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <string>
#include <vector>

namespace lmc {

using plan_ir::Category;

struct Buffer {
  uint64_t bytes = 0;
  int64_t first = INT64_MAX, last = -1; // live range, in positions of ops; unused if first > last
  Category category = Category::Temporaries;
  std::string variable; // for state: the variable that has these bytes; else empty
};

// The decisions of plan-assign-buffers for one function.
struct BufferAssignment {
  struct Copy {
    BufferView from, to;
    mlir::RankedTensorType type;
  };
  struct Scratch {
    unsigned buffer;
    mlir::RankedTensorType type;
  };

  std::vector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, BufferView> views;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Copy>> copies; // see copiesBefore()
  llvm::DenseMap<mlir::Operation *, Scratch> scratch; // per op whose command needs scratch

  BufferView view(mlir::Value value) const { return views.lookup(value); }
  // Returns the copies that must run before `op`'s command.
  llvm::ArrayRef<Copy> copiesBefore(mlir::Operation *op) const;

  // Writes the assignment to attributes of `function` and of its ops:
  //   plan.buffers  of the function: an array of #plan.buffer
  //   plan.views    of an op: a #plan.view for each result
  //   plan.copies   of an op that needs copies: an array of #plan.copy
  //   plan.scratch  of an op that needs scratch: a #plan.scratch
  void attachTo(mlir::func::FuncOp function) const;
  // Reads the attributes that `attachTo` wrote. Reports an error at the function if there are none.
  static mlir::FailureOr<BufferAssignment> readFrom(mlir::func::FuncOp function);
};

// This MLIR analysis holds the buffer assignments of a module's functions. plan-assign-buffers
// fills it, so that later passes need not read the attributes.
struct BufferAssignments {
  explicit BufferAssignments(mlir::Operation * /*module*/) {}

  // Returns the assignment of a function. Reads it from the attributes if it is missing here.
  mlir::FailureOr<BufferAssignment *> of(mlir::func::FuncOp function);

  llvm::DenseMap<mlir::Operation *, BufferAssignment> functions;
};

} // namespace lmc
