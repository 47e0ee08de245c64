// dist-sync-optimizer: joins values of which each rank computes only a part. Passes.td lists them.
//
//   %n = lm.global_norm(%piece)   =>   %n = lm.global_norm(all_gather([lm.global_norm(%piece)]))
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "ground/plan/MomentBlock.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/StringSet.h"

namespace lmc {
#define GEN_PASS_DEF_SYNCOPTIMIZERPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using dist::Axis;
using Kind = lm::VariableKind;

namespace {

class OptimizerSync {
public:
  OptimizerSync(ModuleOp module, dist::MeshOp mesh)
      : module(module), symbols(module), b(module.getContext()), mesh(mesh) {}

  LogicalResult run() {
    auto optimizer = symbols.lookup<func::FuncOp>(names::kOptimizer);
    if (!optimizer)
      return module.emitOpError("has no @optimizer; run lm-insert-optimizer first");
    joinNorms(optimizer);
    sumLosses(optimizer);
    sumRouters(optimizer);
    listStates();
    return mesh.ranksAlong(Axis::Shard) > 1 ? gatherWeights(optimizer) : success();
  }

private:
  // Returns the sum over all ranks of a scalar or vector.
  Value overRanks(Value sum) {
    auto type = tensorTypeOf(sum);
    Value vector = reshape(b, sum.getLoc(), sum, {type.getNumElements()});
    for (Axis axis : {Axis::Shard, Axis::Replicate})
      vector = createCollective<dist::AllReduceOp>(b, sum.getLoc(), mesh, axis, vector);
    return reshape(b, sum.getLoc(), vector, type.getShape());
  }

  void joinNorms(func::FuncOp optimizer) {
    if (mesh.ranksAlong(Axis::Shard) == 1)
      return;
    for (Operation &op : llvm::make_early_inc_range(optimizer.getBody().front())) {
      if (!isa<lm::GlobalNormOp, lm::NormOfPartsOp>(op))
        continue;
      b.setInsertionPointAfter(&op);
      Value own = op.getResult(0);
      Value vector = reshape(b, op.getLoc(), own, {1});
      Operation *reshaped = vector.getDefiningOp();
      Value all = createCollective<dist::AllGatherOp>(b, op.getLoc(), mesh, Axis::Shard, vector);
      Value norm = lm::GlobalNormOp::create(b, op.getLoc(), own.getType(), all);
      own.replaceAllUsesExcept(norm, reshaped);
    }
  }

  void sumLosses(func::FuncOp optimizer) {
    if (auto loss = symbols.lookup<lm::VariableOp>(names::kLoss)) {
      // lm.guard_norm must read the sum of the loss over all ranks.
      Block &body = optimizer.getBody().front();
      SmallVector<lm::LoadOp> readers;
      for (auto load : body.getOps<lm::LoadOp>())
        if (load.getVariable() == names::kLoss)
          readers.push_back(load);
      b.setInsertionPoint(readers.empty() ? body.getTerminator() : readers.front());
      Location loc = NameLoc::get(b.getStringAttr("loss"));
      Value own = lm::LoadOp::create(b, loc, loss.getType(), names::kLoss);
      Value all = overRanks(own);
      lm::StoreOp::create(b, loc, all, names::kLoss);
      for (lm::LoadOp reader : readers) {
        reader.getResult().replaceAllUsesWith(all);
        reader.erase();
      }
    }
    if (auto eval = symbols.lookup<func::FuncOp>(names::kEval))
      for (auto store : eval.getBody().front().getOps<lm::StoreOp>())
        if (store.getVariable() == names::kEvalLoss) {
          b.setInsertionPoint(store);
          store.getValueMutable().assign(overRanks(store.getValue()));
        }
  }

  // Sums the statistics of routers over all ranks.
  void sumRouters(func::FuncOp optimizer) {
    auto sums = symbols.lookup<lm::VariableOp>(names::kRouterSums);
    if (!sums)
      return;
    b.setInsertionPoint(optimizer.getBody().front().getTerminator());
    Location loc = NameLoc::get(b.getStringAttr(names::kRouterSums));
    Value own = lm::LoadOp::create(b, loc, sums.getType(), sums.getSymName());
    lm::StoreOp::create(b, loc, overRanks(own), sums.getSymName());
  }

  // For each piece of optimizer state, derives the list of its tensors from the parameter's list.
  void listStates() {
    for (auto variable : module.getOps<lm::VariableOp>()) {
      if (variable.getShards() || !variable.getParameter())
        continue;
      auto parameter = symbols.lookup<lm::VariableOp>(*variable.getParameter());
      if (!parameter || !parameter.getShards())
        continue;
      // One element of the state belongs to `share` elements of the parameter: 256 for the scales
      // of 8-bit moments, else 1.
      const int64_t share =
          tensorTypeOf(parameter).getNumElements() / tensorTypeOf(variable).getNumElements();
      SmallVector<Attribute> tensors;
      for (auto tensor : parameter.getShardedAttr().getAsRange<lm::ShardedAttr>()) {
        RankedTensorType type = tensor.getType().clone(tensorTypeOf(variable).getElementType());
        if (share > 1)
          type = type.clone(ArrayRef<int64_t>{type.getNumElements() / share});
        tensors.push_back(lm::ShardedAttr::get(
            b.getContext(),
            b.getStringAttr(lm::stateName(tensor.getName().getValue(), variable.getKind())), type,
            tensor.getOffset() / share, variable.getInit(), tensor.getPitch(),
            DenseI64ArrayAttr()));
      }
      variable.setShardsAttr(parameter.getShardsAttr());
      variable.setGroups(parameter.getGroups());
      variable.setShardedAttr(b.getArrayAttr(tensors));
    }
  }

  // Creates @refresh, which gathers the weights. Makes the optimizer gather the new weights, too.
  LogicalResult gatherWeights(func::FuncOp optimizer) {
    b.setInsertionPointToEnd(module.getBody());
    auto refresh =
        func::FuncOp::create(b, module.getLoc(), names::kRefresh, b.getFunctionType({}, {}));
    symbols.insert(refresh);
    Block &body = *refresh.addEntryBlock();
    b.setInsertionPointToStart(&body);
    auto end = func::ReturnOp::create(b, module.getLoc());
    llvm::StringSet<> unused;        // names of pieces' compute copies that no function reads
    SmallVector<Piece> loaded, made; // those of which ranks gather codes
    for (auto parameter : llvm::to_vector(module.getOps<lm::VariableOp>())) {
      if (parameter.getKind() != Kind::Parameter || !parameter.getShards())
        continue;
      const StringRef unit = parameter.getSymName();
      const std::string copyName = lm::stateName(unit, Kind::ComputeCopy);
      auto copy = symbols.lookup<lm::VariableOp>(copyName);
      auto whole = symbols.lookup<lm::VariableOp>((unit + kWhole).str());
      auto codes = symbols.lookup<lm::VariableOp>((unit + kCodes).str());
      if (whole && whole->hasAttr(kStarts))
        codes = whole;
      b.setInsertionPoint(end);
      Value piece;
      if (whole || copy || codes)
        piece = lm::LoadOp::create(b, end.getLoc(), parameter.getType(), unit);
      if (codes) {
        const auto groups = int64_t(parameter.getGroups());
        loaded.push_back({codes, unit, piece, groups});
        b.setInsertionPoint(optimizer.getBody().front().getTerminator());
        made.push_back({codes, unit, newPiece(optimizer, parameter), groups});
        if (!made.back().value)
          return optimizer.emitError("makes no new weights of @") << unit;
        continue;
      }
      if (!whole) {
        if (copy)
          lm::StoreOp::create(b, end.getLoc(),
                              lm::CastOp::create(b,
                                                 NameLoc::get(b.getStringAttr("weights/" + unit)),
                                                 copy.getType(), piece)
                                  .getResult(),
                              copyName);
        continue;
      }
      gatherInto(whole, parameter, piece);
      b.setInsertionPoint(optimizer.getBody().front().getTerminator());
      Value fresh = newPiece(optimizer, copy ? copy : parameter);
      if (!fresh)
        return optimizer.emitError("makes no new weights of @") << unit;
      gatherInto(whole, parameter, fresh);
      if (copy) {
        unused.insert(copyName);
        unused.insert(copy.getStorage().value_or(copyName));
      }
    }
    b.setInsertionPoint(end);
    castAll(loaded);
    b.setInsertionPoint(optimizer.getBody().front().getTerminator());
    castAll(made);
    for (auto store : llvm::make_early_inc_range(optimizer.getBody().front().getOps<lm::StoreOp>()))
      if (unused.contains(store.getVariable()))
        store.erase();
    for (auto variable : llvm::make_early_inc_range(module.getOps<lm::VariableOp>()))
      if (unused.contains(variable.getSymName()))
        variable.erase();
    return success();
  }

  // A rank's piece of the parameters of a unit, and the variable of its codes or of all ranks'.
  struct Piece {
    lm::VariableOp codes;
    StringRef unit;
    Value value;
    int64_t groups; // number of ranks that divide the unit's experts

    ArrayRef<int64_t> starts() const {
      return codes->getAttrOfType<DenseI64ArrayAttr>(kStarts).asArrayRef();
    }
    Type rounded() const { return codes->getAttrOfType<TypeAttr>(kRounded).getValue(); }
  };

  Location locOf(const Piece &piece) {
    return NameLoc::get(b.getStringAttr("weights/" + piece.unit));
  }

  void castAll(ArrayRef<Piece> pieces) {
    if (pieces.empty())
      return;
    Value rank = loadShardRank(b, NameLoc::get(b.getStringAttr("weights")), mesh, symbols,
                               RankedTensorType::get({}, b.getF32Type()));
    SmallVector<Piece> withOneScale;
    for (const Piece &piece : pieces)
      if (piece.codes->hasAttr(kTileScales))
        castTiles(piece, rank);
      else
        withOneScale.push_back(piece);
    castPieces(withOneScale, rank);
  }

  // Stores the codes of a piece, which the ranks gather if each has those of the whole unit.
  void storeCodes(const Piece &piece, Value codes) {
    Location loc = locOf(piece);
    RankedTensorType type = tensorTypeOf(piece.codes);
    if (codes.getType() != type)
      codes = reshape(b, loc, gatherPieces(b, loc, mesh, codes, piece.groups), type.getShape());
    lm::StoreOp::create(b, loc, codes, lm::VariableOp(piece.codes).getSymName());
  }

  // Casts a piece to codes with scales of tiles, of which several ranks may have parts. Ranks
  // gather the scale of each 128 elements of a row (2 bytes), and each makes those of all tiles of
  // these.
  void castTiles(const Piece &piece, Value rank) {
    Location loc = locOf(piece);
    const int64_t rows = tensorTypeOf(piece.value).getNumElements() / lm::kScaleBlock;
    Value matrix = reshape(b, loc, piece.value, {rows, lm::kScaleBlock});
    Type code = tensorTypeOf(piece.codes).getElementType();
    Value own = lm::RowScalesOp::create(b, loc, RankedTensorType::get({rows}, b.getBF16Type()),
                                        roundedTo(piece.rounded(), loc, matrix), code);
    Value all = gatherPieces(b, loc, mesh, own, piece.groups);
    auto columns = piece.codes->getAttrOfType<DenseI64ArrayAttr>(kColumns).asArrayRef();
    SmallVector<Value> scales;
    for (auto [variable, start, width] : llvm::zip_equal(
             piece.codes->getAttrOfType<ArrayAttr>(kTileScales).getAsRange<FlatSymbolRefAttr>(),
             piece.starts(), columns)) {
      auto type = tensorTypeOf(symbols.lookup<lm::VariableOp>(variable.getValue()));
      const int64_t height = type.getDimSize(0) * lm::kScaleBlock;
      Value ofRows =
          reshape(b, loc, sliceRows(b, loc, all, start, height * width), {height, width});
      scales.push_back(lm::TileScalesOp::create(b, loc, type, ofRows));
      lm::StoreOp::create(b, loc, scales.back(), variable.getValue());
    }
    storeCodes(piece, lm::PieceQuantizeTilesOp::create(b, loc, tensorTypeOf(matrix).clone(code),
                                                       roundedTo(piece.rounded(), loc, matrix),
                                                       rank, scales, piece.starts(), columns,
                                                       uint64_t(piece.groups)));
  }

  Value roundedTo(Type element, Location loc, Value matrix) {
    RankedTensorType type = tensorTypeOf(matrix);
    return type.getElementType() == element
               ? matrix
               : lm::CastOp::create(b, loc, type.clone(element), matrix).getResult();
  }

  // Casts pieces to 8-bit codes. Ranks find the largest values of all tensors together, so that
  // each scale is that of the whole tensor.
  void castPieces(ArrayRef<Piece> pieces, Value rank) {
    if (pieces.empty())
      return;
    Location loc = NameLoc::get(b.getStringAttr("weights"));
    auto scalar = RankedTensorType::get({}, b.getF32Type());
    SmallVector<Value> matrices, largest;
    int64_t count = 0;
    for (const Piece &piece : pieces) {
      Location of = locOf(piece);
      const int64_t elements = tensorTypeOf(piece.value).getNumElements();
      Value matrix = reshape(b, of, piece.value, {elements / kMomentBlock, kMomentBlock});
      matrices.push_back(matrix);
      auto type = scalar.clone(int64_t(piece.starts().size()));
      largest.push_back(lm::PieceMaxAbsOp::create(
          b, of, type, roundedTo(piece.rounded(), of, matrix), rank, piece.starts()));
      count += type.getDimSize(0);
    }
    Value all = tensor::EmptyOp::create(b, loc, {count}, b.getF32Type());
    int64_t offset = 0;
    for (Value part : largest) {
      all = insertRows(b, loc, part, all, offset);
      offset += tensorTypeOf(part).getDimSize(0);
    }
    all = createCollective<dist::AllGatherOp>(b, loc, mesh, Axis::Shard, all);
    Value scales = lm::RanksFp8ScaleOp::create(b, loc, scalar.clone({count, kScalePitch}), all,
                                               tensorTypeOf(pieces[0].codes).getElementType());
    offset = 0;
    for (auto [piece, matrix] : llvm::zip_equal(pieces, matrices)) {
      Location of = locOf(piece);
      const auto number = int64_t(piece.starts().size());
      Value own = sliceRows(b, of, scales, offset, number);
      SmallVector<Value> scalars;
      for (int64_t i = 0; i < number; ++i)
        scalars.push_back(scaleOf(b, of, own, i));
      // Rounding again takes no memory: both kernels read the parameters.
      storeCodes(piece,
                 lm::PieceQuantizeOp::create(
                     b, of, tensorTypeOf(matrix).clone(tensorTypeOf(piece.codes).getElementType()),
                     roundedTo(piece.rounded(), of, matrix), rank, scalars, piece.starts()));
      lm::StoreOp::create(b, of, own, (piece.unit + kScales).str());
      offset += number;
    }
  }

  // Returns the value that the optimizer stores to the piece `source`, or null if it stores none.
  Value newPiece(func::FuncOp optimizer, lm::VariableOp source) {
    const StringRef target = source.getStorage().value_or(source.getSymName());
    for (auto store : optimizer.getBody().front().getOps<lm::StoreOp>()) {
      if (store.getVariable() != target)
        continue;
      Value value = store.getValue();
      if (!source.getStorage())
        return value;
      RankedTensorType type = tensorTypeOf(source);
      Location loc = store.getLoc();
      Value flat = reshape(b, loc, value, {tensorTypeOf(value).getNumElements()});
      return reshape(
          b, loc,
          sliceRows(b, loc, flat, int64_t(*source.getStorageOffset()), type.getNumElements()),
          type.getShape());
    }
    return {};
  }

  // Gathers a unit's new weights into `whole`. `piece` is this rank's piece of `parameter`.
  void gatherInto(lm::VariableOp whole, lm::VariableOp parameter, Value piece) {
    Location loc = NameLoc::get(b.getStringAttr("weights/" + parameter.getSymName()));
    auto type = tensorTypeOf(piece);
    auto element = tensorTypeOf(whole).getElementType();
    if (type.getElementType() != element)
      piece = lm::CastOp::create(b, loc, type.clone(element), piece);
    Value all = gatherPieces(b, loc, mesh, piece, int64_t(parameter.getGroups()));
    lm::StoreOp::create(b, loc, reshape(b, loc, all, tensorTypeOf(whole).getShape()),
                        whole.getSymName());
  }

  ModuleOp module;
  SymbolTable symbols;
  OpBuilder b;
  dist::MeshOp mesh;
};

struct SyncOptimizerPass : lmc::impl::SyncOptimizerPassBase<SyncOptimizerPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto mesh = SymbolTable(module).lookup<dist::MeshOp>(kMesh);
    if (!mesh) {
      module.emitOpError("has no mesh; run dist-shard-state first");
      return signalPassFailure();
    }
    if (mesh.ranksAlong(Axis::Shard) * mesh.ranksAlong(Axis::Replicate) > 1 &&
        failed(OptimizerSync(module, mesh).run()))
      signalPassFailure();
  }
};
} // namespace
