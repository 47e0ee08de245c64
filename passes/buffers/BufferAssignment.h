// Which values of a function share bytes, and how long each buffer lives.
//
// A value is a view of a buffer: a run of bytes, or equally spaced runs (columns of a
// wider tensor). Values share a buffer when
//   * one is a slice (rows, columns) or a reshape of the other;
//   * it is inserted into the other (the part is then made in its place);
//   * an op adds to an accumulator, which its result replaces;
//   * it is stored to a variable (it is then made in the variable's place);
//   * a kernel may write it over inputs that die there.
// Kernels and attention take spaced runs, libraries do not. Where sharing would let
// somebody read the wrong bytes, a copy is recorded instead.
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

// Bytes of a dense tensor.
uint64_t byteSize(mlir::RankedTensorType type);

struct Buffer {
  uint64_t bytes = 0;
  int64_t first = INT64_MAX, last = -1; // positions of ops in the function; first > last: unused
  std::string variable;                 // state: lives at this variable's place
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

  // Without `reuse` only slices and reshapes share bytes with what they are of.
  static mlir::FailureOr<std::unique_ptr<BufferAssignment>>
  compute(mlir::func::FuncOp function, const mlir::SymbolTable &symbols,
          const codegen::Target &target, bool reuse = true);

  BufferView view(mlir::Value value) const { return views.lookup(value); }
  const Buffer &buffer(unsigned id) const { return buffers[id]; }
  unsigned size() const { return unsigned(buffers.size()); }

  // Copies that must run before `op`'s command.
  llvm::ArrayRef<Copy> copiesBefore(mlir::Operation *op) const;

  // Scratch that a command needs on the target; none for most.
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
