// What each layer may keep and recompute, as lm-analyze-recompute found it, and the choice
// among it that lm-apply-recompute carries out.
//
// Both are module attributes, whose form Passes.td describes: `lm.recompute_options` and
// `lm.recompute_choice`.
#pragma once

#include "passes/memory/OpCost.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// The named options, which every layer has at these places of its list. Points of the lower
// hull between them follow.
inline constexpr llvm::StringLiteral kRecomputeModes[] = {"none", "activation", "full", "block"};

struct RecomputeOption {
  std::string name;                // "none", "activation", "full", "block", "hull1", ...
  std::vector<int64_t> recomputed; // ops by their position in the layer's forward half, rising
  std::vector<std::string> ops;    // what the model calls those ops
  uint64_t keptBytes = 0; // from forward to backward, without the layer's arguments and results
  double seconds = 0;     // to run the ops again, once
  double flops = 0;       // of them
};

// A layer function. Layers of a model that share one are the same kind.
struct RecomputeKind {
  std::string layer;
  double forwardFlops = 0;
  std::vector<RecomputeOption> options;

  // Its index; -1 when there is none of that name.
  int64_t find(llvm::StringRef name) const;
};

struct RecomputeOptions {
  std::vector<RecomputeKind> kinds;
  std::vector<int64_t> layers; // the kind of each layer of the model, first to last

  // `mode` for every `stride`-th layer, "none" for the others. Fails where a kind has no
  // option of that name.
  mlir::FailureOr<std::vector<int64_t>> choiceOf(mlir::ModuleOp module, llvm::StringRef mode,
                                                 int64_t stride) const;

  // An option for each layer. Fails when it is not one for each, or there is none of that number.
  mlir::LogicalResult check(mlir::ModuleOp module, llvm::ArrayRef<int64_t> choice) const;

  // FLOPs that the choice adds, as a part of those of all layers' forward and backward passes
  // (3 times the forward pass).
  double flopsOverhead(llvm::ArrayRef<int64_t> choice) const;
};

// Finds the options of every layer of the model, priced by `cost`.
mlir::FailureOr<RecomputeOptions> analyzeRecompute(mlir::ModuleOp module, OpCost cost);

// The attribute `lm.recompute_options`. Reading fails when it is not of the form that writing
// gives it, or is not there.
void writeRecomputeOptions(mlir::ModuleOp module, const RecomputeOptions &options);
mlir::FailureOr<RecomputeOptions> readRecomputeOptions(mlir::ModuleOp module);
bool hasRecomputeOptions(mlir::ModuleOp module);

// The attribute `lm.recompute_choice`; reading gives none when it is not there.
void writeRecomputeChoice(mlir::ModuleOp module, llvm::ArrayRef<int64_t> choice);
mlir::FailureOr<std::optional<std::vector<int64_t>>> readRecomputeChoice(mlir::ModuleOp module);

} // namespace lmc
