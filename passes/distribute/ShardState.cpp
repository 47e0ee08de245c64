// dist-shard-state: forms units of parameters, divides their state between ranks, and sums their
// gradients over ranks. Passes.td shows an example.
#include "passes/distribute/Passes.h"
#include "passes/distribute/Units.h"

#include "dialects/dist/Dist.h"
#include "dialects/lm/EightBits.h"
#include "ground/plan/MomentBlock.h"
#include "ground/plan/Names.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/SymbolTable.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Support/MathExtras.h"

namespace lmc {
#define GEN_PASS_DEF_SHARDSTATEPASS
#include "passes/distribute/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;
using Kind = lm::VariableKind;

namespace {

// Ranks along `shard` divide the state that a ZeRO stage names, and all that earlier stages name.
enum class ZeroStage { None, Optimizer, Gradients, Weights };

struct Member {
  lm::VariableOp parameter, gradient;
  lm::VariableOp copy; // the copy in the compute dtype; null if functions read the parameter itself
  lm::VariableOp scales; // those of its codes, if they are scales of tiles
  int64_t offset = 0;  // offset of the member's first element in the unit's vector
};

// Only parameters whose keys are equal may be in one unit.
struct UnitKey {
  int64_t layer;       // -1: outside of layers
  int64_t alone;       // a number of its own for each matrix outside of layers, else -1
  bool isVector;       // true for norms and biases, whose units span all layers
  bool decays;         // true if the parameters have weight decay
  lm::GroupAttr group; // may be null
  FloatAttr balanced;  // null except for the bias of a router
  bool isTaken;        // true if the optimizer supports the parameters
  bool hasCopy;
  bool hasCodes;  // true if functions read only 8-bit codes of the parameters
  bool hasTiles;  // true if these have scales of tiles
  int64_t groups; // number of ranks that divide the unit's experts; 1: no experts
  Type element;
  bool operator==(const UnitKey &) const = default;
};

struct Unit {
  UnitKey key;
  SmallVector<Member> members;
  int64_t elements = 0;   // padded length of the vector (if key.groups > 1: of one rank's experts)
  std::string name;       // "unit.0"
  RankedTensorType piece; // the type of a rank's piece
};

class Sharder {
public:
  Sharder(ModuleOp module, int64_t ranks, ZeroStage stage, bool reducesEach, StringRef optimizer,
          Type payload)
      : module(module), symbols(module), state(module), b(module.getContext()), ranks(ranks),
        stage(ranks > 1 ? stage : ZeroStage::None), reducesEach(reducesEach),
        facts(lm::OptimizerOpInterface::lookup(module.getContext(), optimizer)), payload(payload) {}

  LogicalResult run() {
    auto micro = symbols.lookup<func::FuncOp>(names::kMicro);
    if (!micro)
      return module.emitOpError("has no @micro; run lm-autodiff first");
    formUnits();
    for (auto [number, unit] : llvm::enumerate(units)) {
      unit.name = ("unit." + Twine(number)).str();
      layOut(unit);
      if (ranks == 1)
        continue;
      declare(unit);
      if (!dividesWeights(unit))
        readWhole(unit);
      else
        for (auto function : module.getOps<func::FuncOp>())
          if (!function.isPrivate() && !function.isExternal())
            gather(function, unit);
    }
    if (reducesEach) {
      GradientReducer reducer(module, payload);
      for (const Unit &unit : units)
        if (failed(reduceEach(micro, unit, reducer)))
          return failure();
    } else {
      SmallVector<Attribute> left;
      for (const Unit &unit : units) {
        // The reduced gradients get the original names, so the local ones are renamed.
        if (ranks > 1)
          for (Member member : unit.members)
            rename(member.gradient, (member.gradient.getSymName() + ".local").str());
        left.push_back(gradientsOf(unit).toAttribute(b));
      }
      module->setAttr(kUnitsToReduce, b.getArrayAttr(left));
    }
    if (ranks == 1)
      return success();
    for (Unit &unit : units)
      for (Member &member : unit.members) {
        if (reducesEach)
          member.gradient.erase();
        if (dividesWeights(unit) && member.copy)
          member.copy.erase();
        member.parameter.erase();
      }
    return success();
  }

  unsigned numUnits() const { return unsigned(units.size()); }

private:
  bool dividesWeights(const Unit &unit) const {
    return stage == ZeroStage::Weights && !unit.key.isVector;
  }

  // Returns the layer that reads `variable` or its codes, or -1 if other ops or several layers do.
  int64_t layerOf(lm::VariableOp variable) {
    llvm::SmallSetVector<Operation *, 8> readers;
    for (Operation *user : users.lookup(variable.getSymName()))
      if (auto load = dyn_cast<lm::LoadOp>(user))
        readers.insert_range(load->getUsers());
    std::optional<int64_t> layer;
    for (size_t i = 0; i < readers.size(); ++i) {
      if (lm::castsToEightBits(readers[i])) {
        readers.insert_range(readers[i]->getUsers());
        continue;
      }
      auto index = readers[i]->getAttrOfType<IntegerAttr>(lm::kLayer);
      if (!index || (layer && *layer != index.getInt()))
        return -1;
      layer = index.getInt();
    }
    return layer.value_or(-1);
  }

  // Returns true if functions only cast `variable` to E4M3, with one scale that comes from itself.
  bool hasOneScale(lm::VariableOp variable) {
    bool isCast = false;
    for (Operation *load : users.lookup(variable.getSymName()))
      for (Operation *reader : load->getUsers()) {
        auto cast = dyn_cast<lm::QuantizeOp>(reader);
        if (!isa<lm::MaxAbsOp>(reader) &&
            !(cast && lm::hasOwnScale(cast) &&
              isa<Float8E4M3FNType>(tensorTypeOf(cast.getResult()).getElementType())))
          return false;
        isCast |= bool(cast);
      }
    return isCast;
  }

  // Returns true if functions only cast `variable` to E4M3, with scales of tiles.
  bool hasTiles(lm::VariableOp variable) {
    bool isCast = false;
    for (Operation *load : users.lookup(variable.getSymName()))
      for (Operation *reader : load->getUsers()) {
        auto cast = dyn_cast<lm::QuantizeTilesOp>(reader);
        if (!cast || !isa<Float8E4M3FNType>(tensorTypeOf(cast.getCodes()).getElementType()))
          return false;
        isCast = true;
      }
    return isCast;
  }

  void formUnits() {
    for (auto function : module.getOps<func::FuncOp>())
      function.walk([&](Operation *op) {
        if (auto load = dyn_cast<lm::LoadOp>(op))
          users[load.getVariable()].push_back(op);
        else if (auto accumulate = dyn_cast<lm::AccumulateOp>(op))
          users[accumulate.getVariable()].push_back(op);
      });
    for (auto parameter : module.getOps<lm::VariableOp>()) {
      lm::VariableOp gradient = parameter.getKind() == Kind::Parameter
                                    ? state.find(parameter.getSymName(), Kind::Gradient)
                                    : lm::VariableOp();
      if (!gradient)
        continue;
      lm::VariableOp copy = state.find(parameter.getSymName(), Kind::ComputeCopy);
      RankedTensorType type = tensorTypeOf(parameter);
      UnitKey key{-1,
                  -1,
                  type.getRank() < 2,
                  bool(parameter.getWeightDecay()),
                  parameter.getGroupAttr(),
                  parameter.getBalancedAttr(),
                  facts->takes(lm::steppedParameter(parameter)),
                  bool(copy),
                  /*hasCodes=*/false,
                  /*hasTiles=*/false,
                  int64_t(parameter.getGroups()),
                  type.getElementType()};
      if (!key.isVector) {
        key.layer = layerOf(copy ? copy : parameter);
        if (ranks > 1) {
          key.hasTiles = hasTiles(copy ? copy : parameter);
          key.hasCodes = key.hasTiles || (key.groups == 1 && hasOneScale(copy ? copy : parameter));
        }
        if (key.layer < 0)
          key.alone = int64_t(units.size());
      }
      auto unit = llvm::find_if(units, [&](const Unit &each) { return each.key == key; });
      if (unit == units.end())
        unit = units.insert(units.end(), Unit{key, {}, 0, {}, {}});
      unit->members.push_back({parameter, gradient, copy, {}});
    }
  }

  // Chooses the offsets of the unit's members, and the type of each rank's piece.
  void layOut(Unit &unit) {
    // Each parameter begins at a moment block, so that a block has elements of one parameter only,
    // and wide loads are aligned.
    int64_t end = 0;
    for (Member &member : unit.members) {
      member.offset = end;
      end += llvm::alignTo(tensorTypeOf(member.parameter).getNumElements(), kMomentBlock);
    }
    const int64_t sharing = ranks / unit.key.groups; // ranks that divide these elements
    unit.elements = int64_t(llvm::alignTo(end, sharing * kMomentBlock));
    const int64_t own = unit.elements / sharing;
    // The optimizer updates pieces that are matrices; its fallback updates pieces that are vectors.
    unit.piece = unit.key.isTaken
                     ? RankedTensorType::get({own / kMomentBlock, kMomentBlock}, unit.key.element)
                     : RankedTensorType::get({own}, unit.key.element);
  }

  // Declares the variables of a rank's piece of the unit.
  void declare(Unit &unit) {
    lm::VariableOp first = unit.members.front().parameter;
    auto init = [&](lm::InitKind kind) { return lm::InitAttr::get(b.getContext(), kind); };
    auto divided = [&](lm::VariableOp variable) {
      variable.setShards(uint64_t(ranks));
      variable.setGroups(uint64_t(unit.key.groups));
      variable.setShardedAttr(shardedOf(unit, variable));
    };
    lm::VariableOp parameter =
        declare(unit.name, Kind::Parameter, unit.piece, init(lm::InitKind::None), first);
    parameter.setWeightDecay(unit.key.decays);
    parameter.setGroupAttr(unit.key.group);
    parameter.setBalancedAttr(unit.key.balanced);
    parameter.setHidden(first.getHidden() && unit.key.isTaken);
    divided(parameter);
    divided(declare(lm::stateName(unit.name, Kind::Gradient), Kind::Gradient, unit.piece,
                    init(lm::InitKind::Zeros), first, unit.name));
    if (unit.key.hasCopy && !unit.key.hasCodes) {
      Type compute = tensorTypeOf(unit.members.front().copy).getElementType();
      divided(declare(lm::stateName(unit.name, Kind::ComputeCopy), Kind::ComputeCopy,
                      unit.piece.clone(compute), lm::InitAttr::copyOf(b.getStringAttr(unit.name)),
                      first, unit.name));
    }
    if (unit.key.hasCodes)
      declareCodes(unit);
  }

  // Declares the variables of a unit's codes, which dist-sync-optimizer makes: those of a rank's
  // piece, or of the whole unit if ranks have whole weights.
  void declareCodes(Unit &unit) {
    const Member &first = unit.members.front();
    auto declareOne = [&](const std::string &name, ArrayRef<int64_t> shape, Type element) {
      lm::VariableOp variable =
          declare(name, Kind::ComputeCopy, RankedTensorType::get(shape, element),
                  lm::InitAttr::get(b.getContext(), lm::InitKind::None), first.parameter);
      variable.setAnonymous(true);
      return variable;
    };
    Type code = Float8E4M3FNType::get(b.getContext());
    const int64_t row = unit.key.hasTiles ? lm::kScaleBlock : int64_t(kMomentBlock);
    lm::VariableOp codes =
        dividesWeights(unit)
            ? declareOne(unit.name + kCodes.str(), {unit.piece.getNumElements() / row, row}, code)
            : declareOne(unit.name + kWhole.str(), {unit.elements}, code);
    SmallVector<int64_t> starts;
    for (const Member &member : unit.members)
      starts.push_back(member.offset / row);
    if (unit.key.hasTiles) {
      SmallVector<Attribute> scales;
      SmallVector<int64_t> columns;
      for (Member &member : unit.members) {
        member.scales =
            declareOne(member.parameter.getSymName().str() + kScales.str(),
                       tensorTypeOf(tilesOf(member).getScales()).getShape(), b.getF32Type());
        scales.push_back(FlatSymbolRefAttr::get(member.scales));
        columns.push_back(tensorTypeOf(member.parameter).getDimSize(1) / lm::kScaleBlock);
      }
      codes->setAttr(kTileScales, b.getArrayAttr(scales));
      codes->setAttr(kColumns, b.getDenseI64ArrayAttr(columns));
    } else {
      declareOne(unit.name + kScales.str(), {int64_t(unit.members.size()), kScalePitch},
                 b.getF32Type());
    }
    codes->setAttr(kStarts, b.getDenseI64ArrayAttr(starts));
    codes->setAttr(
        kRounded,
        TypeAttr::get(tensorTypeOf(first.copy ? first.copy : first.parameter).getElementType()));
  }

  // Returns a cast of a member that has scales of tiles.
  lm::QuantizeTilesOp tilesOf(const Member &member) {
    for (Operation *load :
         users.lookup(lm::VariableOp(member.copy ? member.copy : member.parameter).getSymName()))
      for (Operation *reader : load->getUsers())
        if (auto cast = dyn_cast<lm::QuantizeTilesOp>(reader))
          return cast;
    return {};
  }

  lm::VariableOp declare(StringRef name, Kind kind, RankedTensorType type, lm::InitAttr init,
                         lm::VariableOp before, StringRef parameter = "") {
    b.setInsertionPoint(before);
    auto variable =
        lm::VariableOp::create(b, before.getLoc(), name, kind, type, init, false,
                               parameter.empty() ? StringAttr() : b.getStringAttr(parameter));
    symbols.insert(variable);
    return variable;
  }

  // `variable` is the unit's parameter, gradient or compute copy. Lists its tensors under the names
  // that they have in the plan.
  ArrayAttr shardedOf(const Unit &unit, lm::VariableOp variable) {
    SmallVector<Attribute> tensors;
    auto add = [&](StringAttr name, RankedTensorType type, int64_t offset, lm::InitAttr init,
                   int64_t pitch = 0, DenseI64ArrayAttr columns = {}) {
      if (variable.getKind() == Kind::ComputeCopy)
        init = lm::InitAttr::copyOf(name);
      else if (variable.getKind() != Kind::Parameter)
        init = variable.getInit();
      tensors.push_back(lm::ShardedAttr::get(
          b.getContext(), b.getStringAttr(lm::stateName(name.getValue(), variable.getKind())),
          type.clone(tensorTypeOf(variable).getElementType()), offset, init, pitch, columns));
    };
    auto addParts = [&](const Member &member, ArrayRef<Attribute> parts, int64_t offset) {
      RankedTensorType type = tensorTypeOf(member.parameter);
      for (Attribute each : parts) {
        auto part = cast<lm::PartAttr>(each);
        SmallVector<int64_t> shape(type.getShape());
        shape[0] = part.getRows();
        const int64_t elements = type.clone(shape).getNumElements();
        const bool isPadded = part.getColumns() && part.getColumns() < shape[1];
        const int64_t pitch = isPadded ? shape[1] : 0;
        if (isPadded)
          shape[1] = part.getColumns();
        if (!part.getName().empty())
          add(part.getName(), type.clone(shape), offset, part.getInit(), pitch);
        offset += elements;
      }
    };
    for (int64_t group = 0; group < unit.key.groups; ++group)
      for (const Member &member : unit.members) {
        lm::VariableOp parameter = member.parameter;
        const int64_t offset = group * unit.elements + member.offset;
        if (!parameter.getParts()) {
          add(parameter.getSymNameAttr(), tensorTypeOf(parameter), offset, parameter.getInit(),
              /*pitch=*/0, parameter.getColumnsAttr());
          continue;
        }
        // Lists the named parts of `group`. If key.groups > 1, each named part is an expert, and
        // all groups have equally many experts.
        ArrayRef<Attribute> parts = parameter.getPartsAttr().getValue();
        const size_t count = parts.size() / size_t(unit.key.groups);
        addParts(member, parts.slice(size_t(group) * count, count), offset);
      }
    return b.getArrayAttr(tensors);
  }

  // Makes the functions read compute copies of whole weights, which lie in one storage per unit.
  void readWhole(Unit &unit) {
    const Member &first = unit.members.front();
    lm::VariableOp read = first.copy ? first.copy : first.parameter;
    auto none = lm::InitAttr::get(b.getContext(), lm::InitKind::None);
    const std::string name = unit.name + kWhole.str();
    if (!unit.key.hasCodes)
      declare(name, Kind::ComputeCopy,
              RankedTensorType::get({unit.elements}, tensorTypeOf(read).getElementType()), none,
              first.parameter)
          .setAnonymous(true);
    for (Member &member : unit.members) {
      lm::VariableOp copy = member.copy;
      if (!copy) {
        copy = declare(lm::stateName(member.parameter.getSymName(), Kind::ComputeCopy),
                       Kind::ComputeCopy, tensorTypeOf(member.parameter), none, member.parameter);
        for (Operation *user : users.lookup(member.parameter.getSymName()))
          if (auto load = dyn_cast<lm::LoadOp>(user))
            load.setVariable(copy.getSymName());
      }
      copy.setInitAttr(none);
      copy.setGroups(uint64_t(unit.key.groups));
      copy.removeParameterAttr();
      copy.setStorage(StringRef(name));
      copy.setStorageOffset(uint64_t(member.offset));
      if (unit.key.hasCodes)
        readCodes(copy, unit, member);
      member.copy = copy;
    }
  }

  // Makes the functions read the codes of a member of the unit, which `copy` has from now on.
  void readCodes(lm::VariableOp copy, const Unit &unit, const Member &member) {
    RankedTensorType type = tensorTypeOf(copy).clone(Float8E4M3FNType::get(b.getContext()));
    copy.setType(type);
    for (Operation *user :
         users.lookup(lm::VariableOp(member.copy ? member.copy : member.parameter).getSymName()))
      if (auto load = dyn_cast<lm::LoadOp>(user)) {
        b.setInsertionPoint(load);
        Value codes = lm::LoadOp::create(b, load.getLoc(), type, copy.getSymName());
        Value scale = scaleOfMember(unit, member, load.getLoc(), loadScales(unit));
        for (Operation *op : replaceCasts(load, codes, scale))
          op->erase();
      }
  }

  Value load(const Unit &unit, lm::VariableOp variable) {
    return lm::LoadOp::create(b, NameLoc::get(b.getStringAttr("weights/" + unit.name)),
                              variable.getType(), variable.getSymName());
  }
  // Loads the scales of the unit's tensors; null if they have scales of tiles.
  Value loadScales(const Unit &unit) {
    auto scales = symbols.lookup<lm::VariableOp>(unit.name + kScales.str());
    return scales ? load(unit, scales) : Value();
  }
  // Returns the scale of a member's codes, which is one of `scales`, or loads its scales of tiles.
  Value scaleOfMember(const Unit &unit, const Member &member, Location loc, Value scales) {
    return member.scales ? load(unit, member.scales)
                         : scaleOf(b, loc, scales, &member - unit.members.begin());
  }

  // Replaces the casts of a weight that `load` reads. Returns the ops that nothing needs any more,
  // each before what it reads.
  SmallVector<Operation *> replaceCasts(lm::LoadOp load, Value codes, Value scale) {
    SmallVector<Operation *> unread;
    for (Operation *reader : load->getUsers())
      if (auto cast = dyn_cast<lm::QuantizeOp>(reader)) {
        cast.getScale().replaceAllUsesExcept(scale, cast);
        cast.replaceAllUsesWith(codes);
        unread.append({cast, cast.getScale().getDefiningOp()});
      } else if (auto tiles = dyn_cast<lm::QuantizeTilesOp>(reader)) {
        tiles.getCodes().replaceAllUsesWith(codes);
        tiles.getScales().replaceAllUsesWith(scale);
        unread.push_back(tiles);
      }
    for (Operation *reader : load->getUsers())
      if (isa<lm::MaxAbsOp>(reader))
        unread.push_back(reader);
    unread.push_back(load);
    return unread;
  }

  // Renames a gradient that only lm.accumulate ops use.
  void rename(lm::VariableOp gradient, const std::string &name) {
    for (Operation *user : users.lookup(gradient.getSymName()))
      cast<lm::AccumulateOp>(user).setVariable(name);
    symbols.remove(gradient);
    gradient.setSymName(name);
    gradient.removeParameterAttr();
    symbols.insert(gradient);
  }

  // Gathers all weights of the unit once in `function`, before the first op that reads one of them.
  // Replaces each load of a weight by a part of the gathered vector.
  void gather(func::FuncOp function, Unit &unit) {
    SmallVector<std::pair<lm::LoadOp, const Member *>> loads;
    Operation *first = nullptr;
    llvm::StringMap<const Member *> members;
    for (const Member &member : unit.members)
      members[lm::VariableOp(member.copy ? member.copy : member.parameter).getSymName()] = &member;
    for (auto load : function.getBody().front().getOps<lm::LoadOp>()) {
      const Member *member = members.lookup(load.getVariable());
      if (!member)
        continue;
      loads.push_back({load, member});
      for (Operation *reader : load->getUsers())
        if (!first || reader->isBeforeInBlock(first))
          first = reader;
    }
    if (!first)
      return;
    auto mesh = symbols.lookup<dist::MeshOp>(kMesh);
    const std::string source = unit.key.hasCodes  ? unit.name + kCodes.str()
                               : unit.key.hasCopy ? lm::stateName(unit.name, Kind::ComputeCopy)
                                                  : unit.name;
    auto variable = symbols.lookup<lm::VariableOp>(source);
    b.setInsertionPoint(first);
    Location loc = NameLoc::get(b.getStringAttr("weights/" + unit.name));
    Value piece = lm::LoadOp::create(b, loc, variable.getType(), source);
    Value whole = gatherPieces(b, loc, mesh, piece, unit.key.groups, unit.key.layer);
    Value vector = reshape(b, loc, whole, {unit.elements});
    Value scales = unit.key.hasCodes ? loadScales(unit) : Value();
    SmallVector<Operation *> unread;
    for (auto [load, member] : loads) {
      RankedTensorType type = tensorTypeOf(load.getResult());
      Value weight =
          reshape(b, loc, sliceRows(b, loc, vector, member->offset, type.getNumElements()),
                  type.getShape());
      if (unit.key.hasCodes) {
        unread.append(replaceCasts(load, weight, scaleOfMember(unit, *member, loc, scales)));
        continue;
      }
      load.replaceAllUsesWith(weight);
      unread.push_back(load);
    }
    for (Operation *op : unread)
      op->erase();
  }

  UnitGradients gradientsOf(const Unit &unit) {
    UnitGradients gradients;
    for (Member member : unit.members) {
      gradients.members.push_back(member.gradient.getSymName().str());
      gradients.offsets.push_back(member.offset);
    }
    gradients.elements = unit.elements;
    if (ranks > 1)
      gradients.piece = lm::stateName(unit.name, Kind::Gradient);
    gradients.layer = unit.key.layer;
    gradients.counts = bool(unit.key.balanced);
    gradients.groups = unit.key.groups;
    return gradients;
  }

  // Sums the unit's gradients of one micro-step over ranks, once all these gradients are complete.
  LogicalResult reduceEach(func::FuncOp micro, const Unit &unit, GradientReducer &reducer) {
    SmallVector<Value> values;
    SmallVector<lm::AccumulateOp> accumulates;
    Operation *last = nullptr;
    for (const Member &member : unit.members) {
      SmallVector<lm::AccumulateOp> contributions;
      for (Operation *user : users.lookup(lm::VariableOp(member.gradient).getSymName()))
        if (auto accumulate = dyn_cast<lm::AccumulateOp>(user))
          contributions.push_back(accumulate);
      if (contributions.empty())
        return lm::VariableOp(member.gradient).emitError("gets no contribution in @micro");
      llvm::sort(contributions,
                 [](lm::AccumulateOp x, lm::AccumulateOp y) { return x->isBeforeInBlock(y); });
      Value sum;
      for (lm::AccumulateOp each : contributions) {
        b.setInsertionPoint(each);
        sum = sum ? lm::AddOp::create(b, each.getLoc(), sum, each.getValue(), each.getBackward(),
                                      int64_t(each.getLayer()))
                        .getResult()
                  : each.getValue();
        if (!last || last->isBeforeInBlock(each))
          last = each;
      }
      values.push_back(sum);
      accumulates.append(contributions);
    }
    b.setInsertionPointAfter(last);
    const UnitGradients gradients = gradientsOf(unit);
    SmallVector<Value> sums = reducer.reduce(b, gradients, values);
    for (auto [index, sum] : llvm::enumerate(sums))
      lm::AccumulateOp::create(b, sum.getLoc(), sum,
                               gradients.piece.empty() ? gradients.members[index] : gradients.piece,
                               /*backward=*/true, gradients.layer);
    for (lm::AccumulateOp each : accumulates)
      each.erase();
    return success();
  }

  ModuleOp module;
  SymbolTable symbols;
  lm::ParameterState state;
  OpBuilder b;
  const int64_t ranks;
  const ZeroStage stage;
  const bool reducesEach;
  const lm::OptimizerOpInterface::Concept *const facts;
  Type payload;
  std::vector<Unit> units;
  llvm::StringMap<SmallVector<Operation *>> users; // lm.load and lm.accumulate, by variable
};

struct ShardStatePass : lmc::impl::ShardStatePassBase<ShardStatePass> {
  using ShardStatePassBase::ShardStatePassBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto fail = [&](const Twine &message) {
      module.emitError(message);
      signalPassFailure();
    };
    if (replicate < 1 || shard < 1)
      return fail("needs at least one rank along each axis");
    static constexpr StringLiteral kStages[] = {"none", "optimizer", "gradients", "weights"};
    const auto *known = llvm::find(kStages, StringRef(stage));
    if (known == std::end(kStages))
      return fail("stage must be none, optimizer, gradients or weights, not '" + stage + "'");
    if (reduce != "each" && reduce != "last")
      return fail("reduce must be each or last, not '" + reduce + "'");
    if (!lm::OptimizerOpInterface::lookup(&getContext(), optimizer))
      return fail("there is no optimizer '" + optimizer + "'");
    const std::optional<Type> travels = payloadType(payload, &getContext());
    if (!travels)
      return fail("payload must be f32, bf16 or f16, not '" + payload + "'");
    if (known == std::begin(kStages) && shard > 1)
      return fail("stage none divides nothing, so the axis shard must have one rank");
    // dist-parallel-experts may have declared the mesh.
    if (auto mesh = SymbolTable(module).lookup<dist::MeshOp>(kMesh)) {
      if (int64_t(mesh.getReplicate()) != replicate || int64_t(mesh.getShard()) != shard)
        return fail("the mesh has other ranks than the options");
    } else {
      OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
      dist::MeshOp::create(b, module.getLoc(), kMesh, uint64_t(replicate), uint64_t(shard),
                           /*experts=*/1);
    }
    if (replicate * shard == 1)
      return;
    Sharder sharder(module, shard, ZeroStage(known - std::begin(kStages)), reduce == "each",
                    optimizer, *travels);
    if (failed(sharder.run()))
      return signalPassFailure();
    numUnits += sharder.numUnits();
  }
};
} // namespace
