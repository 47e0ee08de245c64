// Putting two pieces of work into one region, for fusions and for launches of kernels.
#pragma once

#include "dialects/kern/Kern.h"

#include <optional>
#include <string>

namespace lmc {

// A kern.fusion, or a kern.launch with its kernel's region.
struct FusionPart {
  mlir::Operation *op;
  kern::Hero hero;
  mlir::Block *body; // arguments are the op's operands, in order; ends in a kern.yield
  mlir::ArrayAttr sources; // may be null
};

FusionPart partOf(kern::FusionOp fusion);
FusionPart partOf(kern::LaunchOp launch, kern::KernelOp kernel);

// How `first` and `second`, which stands behind it, become one.
struct MergePlan {
  kern::Hero hero;
  llvm::SmallVector<mlir::Value> inputs;  // each once
  llvm::SmallVector<mlir::Value> results; // of either part, those that another op reads
  // The above without names: parts with equal regions and equal wiring merge into equal regions.
  llvm::SmallVector<int64_t> wiring;
};

// None, with the reason, when the parts have loops that differ or nobody reads what they make.
std::optional<MergePlan> planMerge(const FusionPart &first, const FusionPart &second,
                                   std::string *reason);

// Fills `into`, which is empty, with both regions. Equal values are computed once only after
// the op that holds the region went through eliminateCommonSubExpressions.
void buildMerged(const MergePlan &plan, const FusionPart &first, const FusionPart &second,
                 mlir::Location loc, mlir::Region &into);

mlir::ArrayAttr mergedSources(mlir::MLIRContext *context, const FusionPart &first,
                              const FusionPart &second);

// Memory traffic that the merge saves: what both read is read once, what one makes and the
// other reads is not read, and is not written either when nobody else reads it.
uint64_t savedBytes(mlir::Operation *first, mlir::Operation *second);

// The text of hero and region: equal texts are equal kernels.
std::string fingerprint(kern::Hero hero, mlir::Block &body);

// "lm.add+lm.rms_norm"
std::string describe(mlir::ArrayAttr sources);

// A C identifier of the same: "add_rms_norm".
std::string kernelName(mlir::ArrayAttr sources);

} // namespace lmc
