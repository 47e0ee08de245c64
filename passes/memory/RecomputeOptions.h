// Recompute options of layers, and a choice of one option per layer. The module attributes
// `lm.recompute_options` and `lm.recompute_choice` hold them. Passes.td describes their form.
#pragma once

#include "passes/memory/OpCost.h"

#include "mlir/IR/BuiltinOps.h"

#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lmc {

// Each layer's list of options begins with one option for each of these names. The options after
// them are corners of the lower convex hull: those that keep fewer bytes than "none" ("hull1",
// ...), and then those that keep more ("keep1", ...).
inline constexpr llvm::StringLiteral kRecomputeModes[] = {"none", "activation", "full", "block"};
// The mode in which every layer keeps all its values.
inline constexpr llvm::StringLiteral kKeepAll = "keep-all";

struct RecomputeOption {
  std::string name;                // "none", "activation", "full", "block", "hull1", ..., "keep1", ...
  std::vector<int64_t> recomputed; // positions of the ops in the forward half, ascending
  std::vector<std::string> ops;    // the names of those ops in the model
  uint64_t keptBytes = 0;          // bytes of kept values, except the layer's arguments and results
  double seconds = 0;              // time to recompute the ops once
  double flops = 0;       // FLOPs of the recomputed ops
  // True if the layer's gathered weights are kept for the backward pass, and not gathered again.
  // Only compiler/search/RecomputeSearch.h uses such options. Module attributes never hold them.
  bool keepsWeights = false;
};

// The options of one layer function, that is, of one kind of layer.
struct RecomputeKind {
  std::string layer;
  double forwardFlops = 0;
  std::vector<RecomputeOption> options;

  // Returns the index of the option named `name`, or -1.
  int64_t find(llvm::StringRef name) const;
};

struct RecomputeOptions {
  std::vector<RecomputeKind> kinds;
  std::vector<int64_t> layers; // the kind of each layer of the model: an index into `kinds`

  // Chooses the option named `mode` for every `stride`-th layer, and "none" for the other layers.
  // Emits an error if a kind of layer has no option of that name.
  mlir::FailureOr<std::vector<int64_t>> choiceOf(mlir::ModuleOp module, llvm::StringRef mode,
                                                 int64_t stride) const;

  // Returns an error unless `choice` gives every layer the index of one of its options.
  mlir::LogicalResult check(mlir::ModuleOp module, llvm::ArrayRef<int64_t> choice) const;
};

// Finds the options of every layer of the model. `cost` returns the seconds to recompute an op.
mlir::FailureOr<RecomputeOptions> analyzeRecompute(mlir::ModuleOp module, OpCost cost);

// Write and read the attribute `lm.recompute_options`. Reading fails if it is missing or malformed.
void writeRecomputeOptions(mlir::ModuleOp module, const RecomputeOptions &options);
mlir::FailureOr<RecomputeOptions> readRecomputeOptions(mlir::ModuleOp module);
bool hasRecomputeOptions(mlir::ModuleOp module);

// Write and read the attribute `lm.recompute_choice`. Reading returns nullopt if it is missing.
void writeRecomputeChoice(mlir::ModuleOp module, llvm::ArrayRef<int64_t> choice);
mlir::FailureOr<std::optional<std::vector<int64_t>>> readRecomputeChoice(mlir::ModuleOp module);

} // namespace lmc
