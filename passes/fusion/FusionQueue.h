// Decides which ops of a function merge; the merge that saves the most time comes first.
#pragma once

#include "passes/fusion/FusionReport.h"
#include "passes/fusion/LiveBytes.h"
#include "passes/fusion/MergeRegions.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <queue>

namespace lmc {

// Kinds of fusion that can be disabled: of an op with the reader of its result, of two readers of
// one tensor, across layers.
inline constexpr llvm::StringLiteral kFusionKinds[] = {"producer", "siblings", "layers"};

struct FusionOptions {
  bool producers = true, siblings = true, layers = true; // the allowed kinds
  double bytesPerSecond = 0, launchSeconds = 0; // the value of a saved byte and a saved launch
};

// Fails for a name that is not a kind of fusion.
mlir::FailureOr<FusionOptions> fusionOptions(mlir::ModuleOp module,
                                             llvm::ArrayRef<std::string> disabled,
                                             double bytesPerSecond, double launchSeconds);

// The operations that differ between kern.fusion and kern.launch.
struct FusionLevel {
  // Returns nothing for an op that cannot merge.
  llvm::function_ref<std::optional<FusionPart>(mlir::Operation *)> partOf;
  // Creates the merged op at the builder's insertion point, with the results that the plan lists.
  // Returns null, with a reason, if no hero can emit it.
  llvm::function_ref<mlir::Operation *(mlir::OpBuilder &, const MergePlan &, const FusionPart &,
                                       const FusionPart &, std::string *)>
      create;
};

class FusionQueue {
public:
  FusionQueue(mlir::func::FuncOp function, const FusionOptions &options, FusionLevel level);
  ~FusionQueue();

  // Merges until no further merge is allowed. Returns the number of merges.
  unsigned run();

  // Every pair that was merged or refused, in the order of the decisions.
  const FusionReport &report() const { return decisions; }

private:
  struct Candidate {
    mlir::Operation *first, *second;
    bool siblings;
    uint64_t savedBytes;
    uint64_t number; // order of entry into the queue; breaks ties
  };
  struct Later {
    bool operator()(const Candidate &x, const Candidate &y) const {
      return x.savedBytes != y.savedBytes ? x.savedBytes < y.savedBytes : x.number > y.number;
    }
  };

  void push(mlir::Operation *one, mlir::Operation *other);
  void pushPairsOf(mlir::Operation *op);
  bool tryMerge(const Candidate &candidate);
  std::optional<llvm::SmallVector<mlir::Operation *>> readersBetween(mlir::Operation *first,
                                                                    mlir::Operation *second,
                                                                    std::string *reason) const;
  bool keepsPeak(const Candidate &candidate, llvm::ArrayRef<mlir::Operation *> moved,
                 std::string *reason);
  void record(const Candidate &candidate, kern::Hero hero, llvm::StringRef refusal);

  mlir::func::FuncOp function;
  FusionOptions options;
  FusionLevel level;
  LiveBytes live;
  mlir::OpBuilder b;
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue;
  uint64_t pushed = 0;
  uint64_t peak = 0;                                     // of live bytes before any merge
  llvm::DenseMap<mlir::Operation *, uint64_t> liveBound; // upper bound of the live bytes at an op
  FusionReport decisions;
  // Merged ops are removed from the block but not deleted, because candidates in the queue may
  // refer to them.
  llvm::SmallVector<mlir::Operation *> gone;
};

} // namespace lmc
