// Decides which ops of a function are merged. The merge that saves the most time comes first.
#pragma once

#include "passes/fusion/queue/FusionReport.h"
#include "passes/fusion/queue/LiveBytes.h"
#include "passes/fusion/queue/MergeRegions.h"

#include "mlir/IR/Builders.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <queue>

namespace lmc {

// The kinds of fusion that can be disabled. "producer" merges an op with a reader of its result.
// "siblings" merges two readers of one tensor. "layers" merges launches of neighbouring layers.
inline constexpr llvm::StringLiteral kFusionKinds[] = {"producer", "siblings", "layers"};

struct FusionOptions {
  bool producers = true, siblings = true, layers = true; // the allowed kinds
  double bytesPerSecond = 0, launchSeconds = 0;          // to compute the time that a merge saves
};

// Returns options that allow all kinds except `disabled`. Fails if a name is not in kFusionKinds.
mlir::FailureOr<FusionOptions> fusionOptions(mlir::ModuleOp module,
                                             llvm::ArrayRef<std::string> disabled,
                                             double bytesPerSecond, double launchSeconds);

// The functions of a FusionQueue that differ between kern.fusion and kern.launch.
struct FusionLevel {
  // Describes an op that may be merged. Returns nullopt for any other op.
  llvm::function_ref<std::optional<FusionPart>(mlir::Operation *)> partOf;
  // Creates the merged op at the builder's insertion point. Fails if no hero can emit it.
  llvm::function_ref<llvm::Expected<mlir::Operation *>(mlir::OpBuilder &, const MergePlan &,
                                                       const FusionPart &, const FusionPart &)>
      create;
};

class FusionQueue {
public:
  FusionQueue(mlir::func::FuncOp function, const FusionOptions &options, FusionLevel level);
  ~FusionQueue();

  // Merges ops until no further merge is allowed. Returns the number of merges.
  unsigned run();

  // Returns every pair of ops that was merged or refused, in the order of the decisions.
  const FusionReport &report() const { return decisions; }

private:
  struct Candidate {
    mlir::Operation *first, *second;
    bool siblings;
    uint64_t savedBytes;
    uint64_t number; // order of entry into the queue; decides between equal savings
  };
  struct Later {
    bool operator()(const Candidate &x, const Candidate &y) const {
      return x.savedBytes != y.savedBytes ? x.savedBytes < y.savedBytes : x.number > y.number;
    }
  };

  void push(mlir::Operation *one, mlir::Operation *other);
  void pushPairsOf(mlir::Operation *op);
  llvm::Error merge(const Candidate &candidate);
  llvm::Expected<llvm::SmallVector<mlir::Operation *>>
  readersBetween(mlir::Operation *first, mlir::Operation *second) const;
  llvm::Error keepPeak(const Candidate &candidate, llvm::ArrayRef<mlir::Operation *> moved);
  // Records a merge with the merged op's hero, or a refusal with its reason.
  void record(const Candidate &candidate, std::optional<kern::Hero> hero, llvm::StringRef refusal);

  mlir::func::FuncOp function;
  FusionOptions options;
  FusionLevel level;
  LiveBytes live;
  mlir::OpBuilder b;
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue;
  uint64_t pushed = 0;
  uint64_t peak = 0;                                     // maximum of live bytes before any merge
  llvm::DenseMap<mlir::Operation *, uint64_t> liveBound; // upper bound of the live bytes at an op
  FusionReport decisions;
  // Ops that a merged op has replaced. They are kept, because queued candidates may refer to them.
  llvm::SmallVector<mlir::Operation *> gone;
};

} // namespace lmc
