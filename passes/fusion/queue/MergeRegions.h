// Merges the regions of two ops into one, for kern.fusion and for kern.launch.
#pragma once

#include "dialects/kern/Kern.h"

#include "llvm/Support/Error.h"

#include <string>

namespace lmc {

// One of two ops to merge: a kern.fusion, or a kern.launch with its kernel's region.
struct FusionPart {
  mlir::Operation *op;
  kern::Hero hero;
  mlir::Block *body;       // its arguments are the op's operands, in order; it ends in a kern.yield
  mlir::ArrayAttr sources; // names of the model ops that the op computes; may be null
};

struct MergePlan {
  kern::Hero hero;
  llvm::SmallVector<mlir::Value> inputs;  // operands of both ops, each value once
  llvm::SmallVector<mlir::Value> results; // results of both ops that another op reads
  // Numbers that say which inputs and results of the two ops are connected. Two merges with equal
  // regions and equal `wiring` have equal merged regions.
  llvm::SmallVector<int64_t> wiring;
};

// Fails if the loops of the two ops differ, or if no op would read the merged op's results.
llvm::Expected<MergePlan> planMerge(const FusionPart &first, const FusionPart &second);

// Fills the empty region of `merged`, which has the plan's hero, with the ops of both regions, each
// common op only once. Fails, and erases `merged`, if no code can be generated for the result.
llvm::Error buildMerged(const MergePlan &plan, const FusionPart &first, const FusionPart &second,
                        mlir::Operation *merged);

// Returns the names of the model ops that the merged op computes, those of `first` first.
mlir::ArrayAttr mergedSources(mlir::MLIRContext *context, const FusionPart &first,
                              const FusionPart &second);

// Returns the number of bytes that two ops read and write in memory, but the merged op does not.
// The merged op reads a common input once, not twice. It does not read the results of `first`, and
// writes such a result only if another op reads it.
uint64_t savedBytes(mlir::Operation *first, mlir::Operation *second);

// Returns hero and region as a string of bytes, not text. Two kernels of one MLIRContext are equal
// if and only if their strings are equal. A string holds addresses, so it differs from run to run.
std::string fingerprint(kern::Hero hero, mlir::Block &body);

// Returns the names of the model ops that a kernel computes, for users: "lm.add+lm.rms_norm".
std::string describe(mlir::ArrayAttr sources);

// Returns a C identifier as a name for a kernel that computes these model ops: "add_rms_norm".
// Different kernels may get the same name: see kern::unusedName().
std::string kernelName(mlir::ArrayAttr sources);

} // namespace lmc
