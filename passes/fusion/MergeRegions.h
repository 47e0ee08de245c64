// Merges the regions of two ops into one, for kern.fusion and for kern.launch.
#pragma once

#include "dialects/kern/Kern.h"

#include <optional>
#include <string>

namespace lmc {

// One of the ops to merge: a kern.fusion, or a kern.launch with its kernel's region.
struct FusionPart {
  mlir::Operation *op;
  kern::Hero hero;
  mlir::Block *body; // arguments are the op's operands, in order; ends in a kern.yield
  mlir::ArrayAttr sources; // may be null
};

FusionPart partOf(kern::FusionOp fusion);
FusionPart partOf(kern::LaunchOp launch, kern::KernelOp kernel);

// How `first` and `second`, which comes after it, become one op.
struct MergePlan {
  kern::Hero hero;
  llvm::SmallVector<mlir::Value> inputs;  // each value once
  llvm::SmallVector<mlir::Value> results; // of both parts: those that another op reads
  // The inputs and results as numbers: parts with equal regions and equal wiring merge into equal
  // regions.
  llvm::SmallVector<int64_t> wiring;
};

// Returns nothing, with the reason, if the loops of the parts differ or no op reads a result.
std::optional<MergePlan> planMerge(const FusionPart &first, const FusionPart &second,
                                   std::string *reason);

// Fills the empty region `into` with both regions. Values that both compute are still computed
// twice until eliminateCommonSubExpressions runs on the op that holds the region.
void buildMerged(const MergePlan &plan, const FusionPart &first, const FusionPart &second,
                 mlir::Location loc, mlir::Region &into);

mlir::ArrayAttr mergedSources(mlir::MLIRContext *context, const FusionPart &first,
                              const FusionPart &second);

// Returns the bytes of memory traffic that a merge saves. A tensor that both ops read is then read
// once. A result of one op that the other reads is no longer read, and if no other op reads it, it
// is no longer written either.
uint64_t savedBytes(mlir::Operation *first, mlir::Operation *second);

// Returns the text of hero and region: kernels are equal if and only if their texts are.
std::string fingerprint(kern::Hero hero, mlir::Block &body);

// Returns the source ops as "lm.add+lm.rms_norm".
std::string describe(mlir::ArrayAttr sources);

// Returns the source ops as a C identifier: "add_rms_norm".
std::string kernelName(mlir::ArrayAttr sources);

} // namespace lmc
