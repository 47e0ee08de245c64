// dist-shard-state groups parameters into units. Ranks divide the state of a unit as a whole, and
// sum its gradients as a whole. The tensors of a unit lie one after the other in one vector.
// Each of the S ranks along the axis `shard` keeps 1/S of this vector, which is called its piece.
#pragma once

#include "dialects/dist/Dist.h"
#include "dialects/lm/TensorTypes.h"

#include "mlir/IR/Builders.h"

#include <optional>
#include <string>
#include <vector>

namespace lmc {

inline constexpr llvm::StringLiteral kMesh = "ranks";

// Suffixes of variables: those of a whole unit, of a rank's piece of a unit in 8-bit codes, and of
// the scales of the unit's tensors, or of one tensor's if its scales are those of tiles.
inline constexpr llvm::StringLiteral kWhole = ".whole", kCodes = ".codes", kScales = ".scales";
// Attributes of the variable of codes: the first row of each tensor in the unit, and the dtype to
// which weights are rounded before they are cast. A row has kMomentBlock elements. If scales are
// those of tiles, it has lm::kScaleBlock, and two more attributes list, for each tensor, the
// variable of its scales and the number of such blocks in a row of the matrix.
inline constexpr llvm::StringLiteral kStarts = "dist.starts", kRounded = "dist.rounded",
                                     kTileScales = "dist.tile_scales", kColumns = "dist.columns";

// Scales lie `kScalePitch` elements apart, so that each begins at a multiple of 16 bytes.
inline constexpr int64_t kScalePitch = 4;
// Returns scale `number` of `scales`, [tensors, kScalePitch], as a scalar.
mlir::Value scaleOf(mlir::OpBuilder &b, mlir::Location loc, mlir::Value scales, int64_t number);

// Loads the rank's position along the axis `shard` as a scalar of `type`. Declares it if needed.
mlir::Value loadShardRank(mlir::OpBuilder &b, mlir::Location loc, dist::MeshOp mesh,
                          mlir::SymbolTable &symbols, mlir::Type type);

// The gradients of a unit, which ranks sum together.
struct UnitGradients {
  std::vector<std::string> members; // the variables of the gradients of this rank's own tokens
  std::vector<int64_t> offsets;     // index of each member's first element in the vector; ascending
  int64_t elements = 0;             // length of the vector, with padding
  // The variable that gets this rank's piece of the sum. If "", each member gets a part of the sum.
  std::string piece;
  int64_t layer = -1;
  // True if the values count the tokens that chose an expert. No cast may round such numbers.
  bool counts = false;
  // The number of ranks that divide the unit's experts; 1: there are no experts. Only ranks with
  // the same experts sum their gradients.
  int64_t groups = 1;

  mlir::Attribute toAttribute(mlir::Builder &b) const;
  static UnitGradients fromAttribute(mlir::Attribute attribute);
};

// The module attribute that lists the units whose gradients dist-reduce-gradients sums.
inline constexpr llvm::StringLiteral kUnitsToReduce = "dist.units";

// Returns the dtype `name`, "bf16" or "f16", to which f32 gradients are cast between ranks. Returns
// null (no cast) for "f32", and nullopt for any other name.
std::optional<mlir::Type> payloadType(llvm::StringRef name, mlir::MLIRContext *context);

// This module attribute, array<i64: ...>, lists the layers whose gathered weights are kept from the
// forward to the backward pass.
inline constexpr llvm::StringLiteral kKeptWeights = "dist.kept_weights";

// Adds the ops that sum a unit's gradients over all ranks.
class GradientReducer {
public:
  // f32 gradients travel between ranks in the dtype `payload`, or in f32 if it is null. In f16 they
  // are scaled by a power of two (lm.scaled_cast) that fits the unit's largest gradient on any
  // rank. f64 gradients travel in f64.
  GradientReducer(mlir::ModuleOp module, mlir::Type payload);

  // Sums `values`, the gradients of the unit's members, over ranks. Returns the values to store:
  // one piece of the sum if `unit.piece` is set, else one value per member. Adds the ops before the
  // insertion point of `b`.
  llvm::SmallVector<mlir::Value> reduce(mlir::OpBuilder &b, const UnitGradients &unit,
                                        llvm::ArrayRef<mlir::Value> values);

private:
  mlir::Value join(mlir::OpBuilder &b, const UnitGradients &unit,
                   llvm::ArrayRef<mlir::Value> values);
  mlir::Value zeros(mlir::OpBuilder &b, int64_t elements, mlir::Type element);
  mlir::Value largest(mlir::OpBuilder &b, const UnitGradients &unit, mlir::Value gradients);

  mlir::SymbolTable symbols;
  dist::MeshOp mesh;
  mlir::Type payload;
};

// Returns true for an op of the tensor dialect: it moves elements, and computes nothing.
bool movesElements(mlir::Operation *op);

// The views of a value (see movesElements()), and the ops that read the value or one of its views,
// in their order in the block.
struct Uses {
  llvm::SmallVector<mlir::Operation *> views, readers;
};
Uses usesOf(mlir::Value value);

// Creates a collective of `input` along `axis`. AllGatherOp multiplies dimension 0 by the number of
// ranks along the axis. ReduceScatterOp divides it by this number, AllReduceOp keeps it. If the
// axis has only one rank, returns `input`.
template <typename Op>
mlir::Value createCollective(mlir::OpBuilder &b, mlir::Location loc, dist::MeshOp mesh,
                             dist::Axis axis, mlir::Value input, bool backward = false,
                             int64_t layer = -1) {
  if (mesh.ranksAlong(axis) == 1)
    return input;
  auto type = mlir::cast<mlir::RankedTensorType>(input.getType());
  llvm::SmallVector<int64_t> shape(type.getShape());
  if constexpr (std::is_same_v<Op, dist::AllGatherOp>)
    shape[0] *= mesh.ranksAlong(axis);
  else if constexpr (std::is_same_v<Op, dist::ReduceScatterOp>)
    shape[0] /= mesh.ranksAlong(axis);
  return Op::create(b, loc, type.clone(shape), input, mesh.getSymName(), axis, /*async=*/false,
                    backward, layer);
}

// Gathers `piece` from all ranks that divide the unit. `groups` is the count of ranks that divide
// the unit's experts. If `groups` is 1, the ranks along `shard` divide the unit. If `groups` is
// larger, the ranks along `expert_shard` do.
mlir::Value gatherPieces(mlir::OpBuilder &b, mlir::Location loc, dist::MeshOp mesh,
                         mlir::Value piece, int64_t groups, int64_t layer = -1);

} // namespace lmc
