// Which pieces of work of a function become one, most time saved first.
#pragma once

#include "passes/fusion/FusionReport.h"
#include "passes/fusion/LiveBytes.h"
#include "passes/fusion/MergeRegions.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <queue>

namespace lmc {

// What may be left out: values passed on, the same tensor read by both, across layers.
inline constexpr llvm::StringLiteral kFusionKinds[] = {"producer", "siblings", "layers"};

struct FusionOptions {
  bool producers = true, siblings = true, layers = true; // kinds that are allowed
  double bytesPerSecond = 0, launchSeconds = 0; // what a saved byte and a saved launch are worth
};

// Fails for a name that is no kind of fusion.
mlir::FailureOr<FusionOptions> fusionOptions(mlir::ModuleOp module,
                                             llvm::ArrayRef<std::string> disabled,
                                             double bytesPerSecond, double launchSeconds);

// What the queue cannot know: whether it works on kern.fusion or on kern.launch.
struct FusionLevel {
  // None for an op that takes no part in fusion.
  llvm::function_ref<std::optional<FusionPart>(mlir::Operation *)> partOf;
  // Creates the merged op at the builder's place, with the results that the plan lists; null,
  // with a reason, when no hero can emit it.
  llvm::function_ref<mlir::Operation *(mlir::OpBuilder &, const MergePlan &, const FusionPart &,
                                       const FusionPart &, std::string *)>
      create;
};

class FusionQueue {
public:
  FusionQueue(mlir::func::FuncOp function, const FusionOptions &options, FusionLevel level);
  ~FusionQueue();

  // Merges until nothing more may; returns how many merges there were.
  unsigned run();

  // Every pair that was merged or refused, in the order of the decisions.
  const FusionReport &report() const { return decisions; }

private:
  struct Candidate {
    mlir::Operation *first, *second;
    bool siblings;
    uint64_t savedBytes;
    uint64_t number; // of its entry into the queue: earlier ones first among equals
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
  uint64_t peak = 0; // of live bytes, before any merge
  llvm::DenseMap<mlir::Operation *, uint64_t> liveBound; // no more than this is live at an op
  FusionReport decisions;
  // Merged ops stay in memory, out of the block: a queued candidate may name them.
  llvm::SmallVector<mlir::Operation *> gone;
};

} // namespace lmc
