// Decides which values of a function share bytes, and computes the live range of each buffer.
//
// A value is a view of a buffer: one run of bytes, or equally spaced runs (columns of a wider
// tensor). Two values share a buffer if
// * one is a slice (rows, columns) or a reshape of the other;
// * one is inserted into the other (it is then computed in its final place);
// * an op adds to an accumulator, and the other value is the op's result;
// * one is stored to a variable (it is then computed in the variable's bytes);
// * a kernel may write one over the other, an input that no later op reads.
//
// Kernels and attention support spaced runs; library calls do not. Where sharing would let an op
// read wrong bytes, a copy is recorded instead.
#pragma once

#include "compiler/kernels/Target.h"
#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

using plan_ir::Category;

// Returns the bytes of a dense tensor.
uint64_t byteSize(mlir::RankedTensorType type);

struct Buffer {
  uint64_t bytes = 0;
  int64_t first = INT64_MAX, last = -1; // positions of ops in the function; unused if first > last
  std::string variable;                 // state: the variable whose bytes these are
  Category category = Category::Temporaries;
};

struct BufferView {
  unsigned buffer = 0;
  int64_t offset = 0; // bytes
  int64_t rows = 1, pitch = 0; // pitch > 0: `rows` runs of bytes, `pitch` bytes apart

  friend bool operator==(const BufferView &, const BufferView &) = default;
};

class BufferAssignment {
public:
  struct Copy {
    BufferView from, to;
    mlir::RankedTensorType type;
  };

  // Computes the assignment. Without `reuse`, only slices and reshapes share the bytes of their
  // operands.
  static mlir::FailureOr<std::unique_ptr<BufferAssignment>>
  compute(mlir::func::FuncOp function, const mlir::SymbolTable &symbols,
          const codegen::Target &target, bool reuse = true);

  BufferView view(mlir::Value value) const { return views.lookup(value); }
  const Buffer &buffer(unsigned id) const { return buffers[id]; }
  unsigned size() const { return unsigned(buffers.size()); }

  // Returns the copies that must run before `op`'s command.
  llvm::ArrayRef<Copy> copiesBefore(mlir::Operation *op) const;

  // The scratch that a command needs on the target. Most commands need none.
  struct Workspace {
    unsigned buffer;
    mlir::RankedTensorType type;
  };
  std::optional<Workspace> workspaceOf(mlir::Operation *op) const;

private:
  friend class BufferAssigner;
  std::vector<Buffer> buffers;
  llvm::DenseMap<mlir::Value, BufferView> views;
  llvm::DenseMap<mlir::Operation *, llvm::SmallVector<Copy>> copies;
  llvm::DenseMap<mlir::Operation *, Workspace> workspaces;
};

} // namespace lmc
