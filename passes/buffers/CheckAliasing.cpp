#include "passes/buffers/CheckAliasing.h"

#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"
#include "passes/buffers/ByteRuns.h"
#include "passes/buffers/OverwriteRule.h"
#include "passes/buffers/Passes.h"
#include "passes/buffers/PlacedBuffers.h"

#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OperationSupport.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallVectorExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

#include <array>
#include <map>

namespace lmc {
#define GEN_PASS_DEF_CHECKALIASINGPASS
#include "passes/buffers/Passes.h.inc"
} // namespace lmc

using namespace mlir;
using namespace lmc;

namespace {

// Where the bytes of a value or slice lie.
struct Place {
  StringRef arena;
  ByteRuns runs;
  RankedTensorType type;
  Operation *slice = nullptr;   // null for state
  int64_t first = 0, last = -1; // first and last command at which the slice is live
};

struct Variable {
  Operation *op;
  StringRef name, arena;
  int64_t offset = 0, bytes = 0;
  Type type;
  bool isStorage = false; // true if other variables are parts of this one

  ByteRuns runs() const { return ByteRuns::dense(offset, bytes); }
};

struct Arena {
  int64_t bytes = 0, alignment = 1;
};

// Ops and commands with equal signatures compute equal results from equal operands.
using Signature = Attribute;

// An op of the function before planning, whose results a command of the plan may compute.
struct ComputedOp {
  Operation *op = nullptr;
  Signature signature;
  SmallVector<Content, 4> reads;
  SmallVector<unsigned, 2> results; // tokens of the results, as indices into `tokens`
  bool done = false;                // true if a command has computed the op
};

// What the check knows of a command of the plan, or of an op of the function on tensors.
struct Command {
  Operation *op = nullptr;
  int64_t index = 0;
  Signature signature;
  SmallVector<StringRef, 8> names; // names of the operands, then of the results
  SmallVector<Value, 4> reads, writes;
  Value scratch;            // memory whose contents are unknown after the command
  bool accumulates = false; // true if the last operand is also the first result
  kern::KernelOp kernel;    // the kernel of a launch
};

// Names a value in memory: result number `result` of `op`, or the initial contents of `arena`.
struct Token {
  Operation *op = nullptr; // the op that computes it; null: the initial contents of an arena
  unsigned result = 0;
  StringRef arena;
};

class AliasingChecker {
public:
  AliasingChecker(func::FuncOp function, plan_ir::FunctionOp planned)
      : function(function), planned(planned), b(function.getContext()) {}

  LogicalResult run();

private:
  // Collect and check symbols, variables and slices.
  void collectSymbols();
  LogicalResult checkVariables();
  LogicalResult checkSlices();
  FailureOr<Place> placeOf(Operation *view);
  LogicalResult checkRuns(Operation *view, const Place &place, int64_t rows, int64_t pitch);
  template <typename Key> std::vector<const Place *> slicesBy(Key key) const;
  LogicalResult checkLifetimes();
  LogicalResult checkBufferStarts();

  // Run the function on symbols.
  LogicalResult evaluateFunction();
  LogicalResult evaluate(Operation &op);
  LogicalResult addStep(Operation &op);
  unsigned kernelClass(kern::KernelOp kernel);
  Content initial(const Variable &variable);
  const Variable *find(StringRef variable, Type type, Operation *user);

  // Run the commands on symbols.
  LogicalResult runCommands();
  FailureOr<Command> describe(Operation &op);
  LogicalResult checkOperands(const Command &command);
  LogicalResult checkStreams(const Command &command);
  LogicalResult checkLayouts(const Command &command);
  LogicalResult checkSharing(const Command &command);
  bool touch(Value x, Value y);
  bool mayShare(const Command &command, unsigned read, unsigned write);
  ComputedOp *findComputed(const Command &command);
  std::optional<std::pair<unsigned, ContentDifference>> misread(const Command &command,
                                                                const ComputedOp &computed);
  ComputedOp *likelyComputed(const Command &command);
  LogicalResult explain(const Command &command);
  void execute(const Command &command, ComputedOp &computed);
  LogicalResult copy(plan_ir::CopyOp op, int64_t index);
  LogicalResult checkEnd();

  InFlightDiagnostic fault(const Command &command);
  std::string describe(const std::optional<Piece> &piece) const;
  std::string describe(const Place &place, const ByteRuns &inside) const;
  std::string nameOf(Operation *op) const;

  func::FuncOp function;
  plan_ir::FunctionOp planned;
  Builder b;

  llvm::StringMap<kern::KernelOp> sourceKernels, planKernels;
  std::vector<Variable> variables; // in the order of arenas and offsets
  llvm::StringMap<unsigned> variableNumbers;
  llvm::StringMap<Arena> arenas;
  SmallVector<kern::KernelOp> kernelClasses;
  llvm::DenseMap<Operation *, unsigned> classes;
  llvm::MapVector<Value, Place> places;
  std::map<std::tuple<Operation *, unsigned, unsigned>, bool> overwrites;

  std::vector<Token> tokens;
  llvm::StringMap<unsigned> initialTokens; // of each arena: the token of its contents at the start
  llvm::DenseMap<Value, Content> contents;
  std::vector<ComputedOp> computedOps;
  llvm::DenseMap<Attribute, SmallVector<unsigned>> computedBySignature;
  std::map<std::vector<int64_t>, unsigned> computedByOperands; // equal results share a token
  size_t next = 0; // index of the first op that no command has computed
  // For each arena: the contents that the function demands at its end, and the current contents.
  llvm::StringMap<ByteMemory> stored, memory;
  SmallVector<Operation *> commands;

  // For each axis, a number n such that all collectives along the axis before command n have ended.
  using PerAxis = std::array<int64_t, 4>;
  std::vector<Command> started; // async collectives that may still run
  // endedWithLast[axis] says which collectives have ended once the last async one along the axis
  // ends. endedWith[slice] says this for the last async collective that writes the slice.
  std::array<PerAxis, 4> endedWithLast{};
  llvm::DenseMap<Value, PerAxis> endedWith;
};

} // namespace

// The checker computes sizes by itself, so that it does not repeat an error of the passes.
static int64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * int64_t(tensor.getElementTypeBitWidth()) / 8;
}

static int64_t widthOf(const Place &place) {
  return int64_t(place.type.getElementTypeBitWidth()) / 8;
}

static bool isSlice(Operation *op) { return isa<plan_ir::SliceOp, plan_ir::VariableRefOp>(op); }

//===-- Messages ----------------------------------------------------------------------------===//

std::string AliasingChecker::nameOf(Operation *op) const {
  std::string name = op->getName().getStringRef().str();
  if (auto launch = dyn_cast<kern::LaunchOp>(op))
    name += (" @" + launch.getKernel()).str();
  if (auto launch = dyn_cast<plan_ir::LaunchOp>(op))
    name += (" @" + launch.getKernel()).str();
  if (auto loc = dyn_cast<NameLoc>(op->getLoc()))
    name += (" (" + loc.getName().getValue() + ")").str();
  return name;
}

InFlightDiagnostic AliasingChecker::fault(const Command &command) {
  return command.op->emitError("command ")
         << command.index << " of @" << planned.getSymName() << ", " << nameOf(command.op) << ", ";
}

std::string AliasingChecker::describe(const Place &place, const ByteRuns &inside) const {
  return llvm::formatv("bytes [{0}, {1}) of @{2}", inside.offset, inside.end(), place.arena);
}

// Describes the contents of bytes and names the command that wrote them.
std::string AliasingChecker::describe(const std::optional<Piece> &piece) const {
  if (!piece)
    return "nothing that was computed";
  const Token &token = tokens[piece->token];
  std::string text;
  if (token.op) {
    text = llvm::formatv("bytes from {0} of result {1} of {2}", piece->from, token.result,
                         nameOf(token.op));
  } else {
    text = llvm::formatv("byte {0} of @{1} as it was", piece->from, token.arena);
    for (const Variable &variable : variables) {
      int64_t inside = piece->from - variable.offset;
      if (variable.arena == token.arena && inside >= 0 && inside < variable.bytes)
        text = llvm::formatv("bytes from {0} of variable @{1} as it was", inside, variable.name);
    }
  }
  if (piece->writer >= 0)
    text += llvm::formatv(", written by command {0}, {1}", piece->writer,
                          nameOf(commands[size_t(piece->writer)]));
  return text;
}

//===-- What is there -----------------------------------------------------------------------===//

void AliasingChecker::collectSymbols() {
  for (auto kernel : function->getParentOfType<ModuleOp>().getOps<kern::KernelOp>())
    sourceKernels[kernel.getSymName()] = kernel;
  auto module = planned->getParentOfType<ModuleOp>();
  for (auto kernel : module.getOps<kern::KernelOp>())
    planKernels[kernel.getSymName()] = kernel;
  for (auto op : module.getOps<plan_ir::VariableOp>())
    variables.push_back({op, op.getSymName(), op.getArena(), int64_t(op.getOffset()),
                         bytesOf(op.getType()), op.getType(), op.getAnonymous()});
  llvm::stable_sort(variables, [](const Variable &x, const Variable &y) {
    return std::tie(x.arena, x.offset, y.isStorage) < std::tie(y.arena, y.offset, x.isStorage);
  });
  for (auto [number, variable] : llvm::enumerate(variables))
    variableNumbers[variable.name] = unsigned(number);
  for (auto arena : module.getOps<plan_ir::ArenaOp>())
    arenas[arena.getSymName()] = {int64_t(arena.getBytes()), int64_t(arena.getAlignment())};
}

// Checks that variables lie in their arenas and do not overlap, except that the members of an
// anonymous variable lie inside it.
LogicalResult AliasingChecker::checkVariables() {
  const Variable *last = nullptr, *storage = nullptr;
  for (const Variable &variable : variables) {
    auto arena = arenas.find(variable.arena);
    if (arena == arenas.end() || variable.offset < 0 ||
        variable.offset + variable.bytes > arena->second.bytes)
      return variable.op->emitError("@") << variable.name << " lies outside of its arena";
    auto endOf = [&](const Variable *other) {
      return other && other->arena == variable.arena ? other->offset + other->bytes : 0;
    };
    bool member = endOf(storage) > variable.offset;
    int64_t width = cast<RankedTensorType>(variable.type).getElementTypeBitWidth() / 8;
    if (variable.offset % (member ? width : arena->second.alignment) != 0)
      return variable.op->emitError("@") << variable.name << " is not aligned";
    bool shares = endOf(last) > variable.offset;
    if (shares || (member && endOf(storage) < variable.offset + variable.bytes))
      return variable.op->emitError("@")
             << variable.name << " shares bytes with @" << (shares ? last : storage)->name;
    (variable.isStorage && !member ? storage : last) = &variable;
  }
  return success();
}

// Checks that spaced runs are whole rows of the tensor and do not overlap each other.
LogicalResult AliasingChecker::checkRuns(Operation *view, const Place &place, int64_t rows,
                                         int64_t pitch) {
  if (pitch == 0)
    return success();
  int64_t bytes = bytesOf(place.type), product = 1;
  bool areRows = false;
  for (int64_t extent : place.type.getShape()) {
    areRows |= product == rows;
    product *= extent;
  }
  areRows |= product == rows && place.type.getRank() > 0;
  if (rows < 1 || !areRows || pitch < bytes / rows || pitch % widthOf(place) != 0)
    return view->emitError("a slice of ")
           << place.type << " has " << rows << " runs with a pitch of " << pitch << " bytes";
  return success();
}

FailureOr<Place> AliasingChecker::placeOf(Operation *view) {
  Place place;
  place.type = cast<plan_ir::SliceType>(view->getResult(0).getType()).getContent();
  int64_t bytes = bytesOf(place.type), offset, rows, pitch, limit, base = 0;
  if (auto ref = dyn_cast<plan_ir::VariableRefOp>(view)) {
    auto it = variableNumbers.find(ref.getVariable());
    if (it == variableNumbers.end())
      return ref.emitError("there is no variable ") << ref.getVariableAttr();
    const Variable &variable = variables[it->second];
    place.arena = variable.arena;
    base = variable.offset;
    offset = int64_t(ref.getOffset()), rows = ref.getRows(), pitch = ref.getPitch();
    limit = variable.bytes;
  } else {
    auto slice = cast<plan_ir::SliceOp>(view);
    place.slice = view;
    place.arena = slice.getArena();
    place.first = int64_t(slice.getFirst()), place.last = int64_t(slice.getLast());
    offset = int64_t(slice.getOffset()), rows = slice.getRows(), pitch = slice.getPitch();
    limit = std::min(arenas.lookup(place.arena).bytes, int64_t(planned.getPeakBytes()));
  }
  if (failed(checkRuns(view, place, rows, pitch)))
    return failure();
  place.runs = pitch ? ByteRuns::spaced(base + offset, rows, pitch, bytes)
                     : ByteRuns::dense(base + offset, bytes);
  if (offset < 0 || place.runs.end() > base + limit)
    return view->emitError("a slice of ") << place.type << " takes bytes [" << offset << ", "
                                          << place.runs.end() - base << ") of " << limit;
  if (offset % widthOf(place) != 0)
    return view->emitError("a slice of ")
           << place.type << " at byte " << offset << " is not aligned to its elements";
  return place;
}

LogicalResult AliasingChecker::checkSlices() {
  for (Operation &op : planned.getBody().front()) {
    if (!isSlice(&op)) {
      commands.push_back(&op);
      continue;
    }
    FailureOr<Place> place = placeOf(&op);
    if (failed(place))
      return failure();
    places[op.getResult(0)] = *place;
  }
  return failure(failed(checkLifetimes()) || failed(checkBufferStarts()));
}

// Returns the places of slices (not of tensors), sorted by `key`.
template <typename Key> std::vector<const Place *> AliasingChecker::slicesBy(Key key) const {
  std::vector<const Place *> sorted;
  for (const auto &entry : places)
    if (entry.second.slice)
      sorted.push_back(&entry.second);
  llvm::stable_sort(sorted, [&](const Place *x, const Place *y) { return key(*x) < key(*y); });
  return sorted;
}

// Checks that two slices share no bytes while both are live. Slices with equal live ranges are in
// one buffer, and may share bytes.
LogicalResult AliasingChecker::checkLifetimes() {
  std::vector<const Place *> alive;
  for (const Place *place : slicesBy([](const Place &x) { return std::make_tuple(x.first); })) {
    llvm::erase_if(alive, [&](const Place *other) { return other->last < place->first; });
    for (const Place *other : alive)
      if ((other->first != place->first || other->last != place->last) &&
          other->arena == place->arena && overlap(other->runs, place->runs))
        return place->slice->emitError("a slice shares ")
               << describe(*place, place->runs) << " with another buffer: it lives from command "
               << place->first << " to " << place->last << ", the other from " << other->first
               << " to " << other->last;
    alive.push_back(place);
  }
  return success();
}

// Checks that each buffer begins at a multiple of the arena's alignment. Adjacent or overlapping
// slices with the same live range count as one buffer.
LogicalResult AliasingChecker::checkBufferStarts() {
  auto buffer = [](const Place &x) { return std::make_tuple(x.arena, x.first, x.last); };
  const Place *last = nullptr;
  int64_t end = -1;
  for (const Place *place : slicesBy([&](const Place &x) {
         return std::tuple_cat(buffer(x), std::make_tuple(x.runs.offset));
       })) {
    bool another = !last || buffer(*last) != buffer(*place);
    if ((another || place->runs.offset > end) &&
        place->runs.offset % arenas.lookup(place->arena).alignment != 0)
      return place->slice->emitError("a buffer begins at byte ")
             << place->runs.offset << " of @" << place->arena << ", which is not aligned";
    end = another ? place->runs.end() : std::max(end, place->runs.end());
    last = place;
  }
  return success();
}

// Kernels of one class differ only in the layouts of their arguments. Returns the class's number.
unsigned AliasingChecker::kernelClass(kern::KernelOp kernel) {
  auto [it, isNew] = classes.try_emplace(kernel, 0);
  if (!isNew)
    return it->second;
  for (unsigned known = 0; known < kernelClasses.size(); ++known)
    if (kernelClasses[known].getHero() == kernel.getHero() &&
        OperationEquivalence::isRegionEquivalentTo(&kernelClasses[known].getBody(),
                                                   &kernel.getBody(),
                                                   OperationEquivalence::IgnoreLocations))
      return it->second = known;
  kernelClasses.push_back(kernel);
  return it->second = unsigned(kernelClasses.size() - 1);
}

//===-- Ops and commands --------------------------------------------------------------------===//

// Returns the attributes that decide what an op computes. Attributes that only affect how the op is
// printed or run are left out.
static DictionaryAttr meaningOf(Operation &op) {
  static const llvm::StringSet<> kForm = {"accumulate", "chunk",  "inputs",
                                          "items",      "kernel", "operandSegmentSizes"};
  SmallVector<NamedAttribute> meaning;
  if (auto all = dyn_cast_or_null<DictionaryAttr>(op.getPropertiesAsAttribute()))
    for (NamedAttribute attribute : all)
      if (!kForm.contains(attribute.getName()))
        meaning.push_back(attribute);
  return DictionaryAttr::get(op.getContext(), meaning);
}

static Type contentTypeOf(Value value) {
  auto slice = dyn_cast<plan_ir::SliceType>(value.getType());
  return slice ? Type(slice.getContent()) : value.getType();
}

// Describes an op of the function, or a command. If it adds to an operand, `reads` ends with this
// operand.
FailureOr<Command> AliasingChecker::describe(Operation &op) {
  auto described = dyn_cast<CommandOpInterface>(op);
  if (!described)
    return op.emitError("is not known to the aliasing check");
  Command command;
  command.op = &op;
  auto missing = [&](FlatSymbolRefAttr kernel) {
    return op.emitError("there is no kernel ") << kernel;
  };
  if (auto launch = dyn_cast<kern::LaunchOp>(op)) {
    command.kernel = sourceKernels.lookup(launch.getKernel());
    if (!command.kernel)
      return missing(launch.getKernelAttr());
  } else if (auto launch = dyn_cast<plan_ir::LaunchOp>(op)) {
    command.kernel = planKernels.lookup(launch.getKernel());
    if (!command.kernel || launch.getInputs() > launch.getArgs().size())
      return missing(launch.getKernelAttr()) << " with " << launch.getInputs() << " inputs";
  }
  SmallVector<StringRef> writeNames;
  Value accumulated;
  for (const CommandOperand &operand : described.getCommandOperands()) {
    if (operand.role == CommandRole::Read) {
      command.reads.push_back(operand.value);
      command.names.push_back(operand.name);
    } else if (operand.role == CommandRole::Scratch) {
      command.scratch = operand.value;
    } else {
      if (operand.role == CommandRole::Accumulate)
        accumulated = operand.value;
      // An op on tensors does not write an operand to which it adds. The sum is a new value.
      if (operand.role == CommandRole::Write || isa<plan_ir::SliceType>(operand.value.getType())) {
        command.writes.push_back(operand.value);
        writeNames.push_back(operand.name);
      }
    }
  }
  if (accumulated) {
    command.accumulates = true;
    command.reads.push_back(accumulated);
    command.names.push_back("what is added to");
  }
  auto types = [&](ArrayRef<Value> values) {
    return b.getTypeArrayAttr(llvm::map_to_vector(values, contentTypeOf));
  };
  command.signature = b.getArrayAttr(
      {b.getStringAttr(described.getCommandName()), meaningOf(op), b.getStrArrayAttr(command.names),
       b.getI64IntegerAttr(command.kernel ? int64_t(kernelClass(command.kernel)) : -1),
       types(command.reads), types(command.writes)});
  command.names.append(writeNames);
  return command;
}

//===-- The function ------------------------------------------------------------------------===//

Content AliasingChecker::initial(const Variable &variable) {
  auto [it, isNew] = initialTokens.try_emplace(variable.arena, unsigned(tokens.size()));
  if (isNew)
    tokens.push_back({nullptr, 0, variable.arena});
  Content content = contentOf(it->second, variable.bytes);
  content.front().from = variable.offset;
  return content;
}

const Variable *AliasingChecker::find(StringRef variable, Type type, Operation *user) {
  auto it = variableNumbers.find(variable);
  if (it != variableNumbers.end() && variables[it->second].type == type)
    return &variables[it->second];
  user->emitError("the plan has no variable @") << variable << " of type " << type;
  return nullptr;
}

LogicalResult AliasingChecker::addStep(Operation &op) {
  FailureOr<Command> described = describe(op);
  if (failed(described))
    return failure();
  ComputedOp computed;
  computed.op = &op;
  computed.signature = described->signature;
  std::vector<int64_t> key{int64_t(uintptr_t(computed.signature.getAsOpaquePointer()))};
  for (Value read : described->reads) {
    computed.reads.push_back(contents.lookup(read));
    key.push_back(int64_t(computed.reads.back().size()));
    for (const Piece &piece : computed.reads.back())
      key.insert(key.end(), {piece.place.offset, piece.place.rows, piece.place.pitch,
                             piece.place.run, piece.token, piece.from, piece.fromPitch});
  }
  auto [known, isNew] = computedByOperands.try_emplace(key, unsigned(computedOps.size()));
  for (OpResult result : op.getResults()) {
    if (isNew) {
      computed.results.push_back(unsigned(tokens.size()));
      tokens.push_back({&op, result.getResultNumber(), {}});
    } else {
      computed.results.push_back(computedOps[known->second].results[result.getResultNumber()]);
    }
    contents[result] = contentOf(computed.results.back(), bytesOf(result.getType()));
  }
  computedBySignature[computed.signature].push_back(unsigned(computedOps.size()));
  computedOps.push_back(std::move(computed));
  return success();
}

// Returns where a slice of `whole` lies in `whole`. The slice must be equally spaced runs.
template <typename SliceOp>
static FailureOr<ByteRuns> runsOf(SliceOp slice, RankedTensorType whole) {
  ArrayRef<int64_t> offsets = slice.getStaticOffsets(), sizes = slice.getStaticSizes();
  ArrayRef<int64_t> shape = whole.getShape();
  if (llvm::any_of(slice.getStaticStrides(), [](int64_t stride) { return stride != 1; }) ||
      llvm::is_contained(offsets, ShapedType::kDynamic) ||
      llvm::is_contained(sizes, ShapedType::kDynamic))
    return slice.emitError("is no slice with constant offsets and sizes, and strides of 1");
  // `inner` becomes the last dimension that the slice does not cover completely, or 0. Of the
  // dimensions before it, those of size 1 add no runs.
  int64_t inner = whole.getRank() - 1;
  int64_t stride = int64_t(whole.getElementTypeBitWidth()) / 8, offset = 0;
  for (; inner > 0 && sizes[size_t(inner)] == shape[size_t(inner)]; --inner)
    stride *= shape[size_t(inner)];
  if (inner < 0)
    return ByteRuns::dense(0, stride);
  int64_t run = stride * sizes[size_t(inner)], rows = 1, pitch = 0;
  offset = offsets[size_t(inner)] * stride;
  for (int64_t dim = inner; dim-- > 0;) {
    stride *= shape[size_t(dim) + 1];
    offset += offsets[size_t(dim)] * stride;
    if (sizes[size_t(dim)] == 1)
      continue;
    if (rows == 1)
      pitch = stride;
    else if (stride != rows * pitch)
      return slice.emitError("takes runs of bytes that are not equally spaced");
    rows *= sizes[size_t(dim)];
  }
  return ByteRuns::spaced(offset, rows, pitch, rows * run);
}

LogicalResult AliasingChecker::evaluate(Operation &op) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](lm::LoadOp load) -> LogicalResult {
        const Variable *variable = find(load.getVariable(), load.getType(), load);
        if (!variable)
          return failure();
        contents[load] = initial(*variable);
        return success();
      })
      .Case([&](lm::StoreOp store) -> LogicalResult {
        const Variable *variable = find(store.getVariable(), store.getValue().getType(), store);
        if (!variable)
          return failure();
        stored[variable->arena].write(variable->runs(), contents.lookup(store.getValue()), -1);
        return success();
      })
      .Case([&](tensor::EmptyOp) { return success(); })
      .Case([&](tensor::ExtractSliceOp slice) -> LogicalResult {
        FailureOr<ByteRuns> part = runsOf(slice, slice.getSourceType());
        if (failed(part))
          return failure();
        contents[slice] = partOf(contents.lookup(slice.getSource()), *part);
        return success();
      })
      .Case([&](tensor::InsertSliceOp slice) -> LogicalResult {
        FailureOr<ByteRuns> part = runsOf(slice, slice.getDestType());
        if (failed(part))
          return failure();
        contents[slice] = replacePart(contents.lookup(slice.getDest()), *part,
                                      contents.lookup(slice.getSource()));
        return success();
      })
      .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp>([&](auto reshape) {
        Content same = contents.lookup(reshape.getSrc());
        contents[reshape] = same;
        return success();
      })
      .Case([&](CommandOpInterface) { return addStep(op); })
      .Case([&](func::ReturnOp) { return success(); })
      .Default([](Operation *op) { return op->emitError("is not known to the aliasing check"); });
}

LogicalResult AliasingChecker::evaluateFunction() {
  for (const Variable &variable : variables) {
    stored[variable.arena].write(variable.runs(), initial(variable), -1);
    memory[variable.arena].write(variable.runs(), initial(variable), -1);
  }
  for (Operation &op : function.getBody().front())
    if (failed(evaluate(op)))
      return failure();
  return success();
}

//===-- The commands ------------------------------------------------------------------------===//

// Returns true if `name` is an operand that attention reads or writes as rows of tokens, which may
// have a pitch.
static bool isTokenMatrix(StringRef name) {
  return llvm::is_contained({"q", "k", "v", "dq", "dk", "dv"}, name);
}

// Returns true if an operand or result of a command may have spaced runs. `number` counts operands
// first, then results. Does not call `mayBeSpaced`, because the passes chose the places with it.
static bool takesSpacedRuns(const Command &command, unsigned number) {
  return command.kernel || isa<plan_ir::CopyOp>(command.op) || isTokenMatrix(command.names[number]);
}

LogicalResult AliasingChecker::checkLayouts(const Command &command) {
  unsigned number = 0;
  for (Value value : llvm::concat<const Value>(command.reads, command.writes)) {
    const Place &place = places[value];
    bool spaced = place.runs.rows > 1;
    StringRef name = command.names[number];
    if (spaced && !takesSpacedRuns(command, number))
      return fault(command) << "takes " << name << " for dense, but it is spaced";
    if (spaced && isTokenMatrix(name) && place.runs.rows != place.type.getDimSize(0))
      return fault(command) << "takes " << name << " for rows of tokens, but it has "
                            << place.runs.rows << " runs";
    if (kern::KernelOp kernel = command.kernel) {
      bool known = kernel.getArgRows() && kernel.getArgPitches() &&
                   number < kernel.getArgPitches()->size() && number < kernel.getArgRows()->size();
      int64_t pitch = known ? (*kernel.getArgPitches())[number] * widthOf(place) : 0;
      int64_t rows = known ? (*kernel.getArgRows())[number] : 1;
      ByteRuns taken = pitch ? ByteRuns::spaced(place.runs.offset, rows, pitch, bytesOf(place.type))
                             : ByteRuns::dense(place.runs.offset, bytesOf(place.type));
      if (taken != place.runs)
        return fault(command) << "has a kernel that takes " << name << " for " << taken.rows
                              << " runs with a pitch of " << taken.pitch << " bytes, but it has "
                              << place.runs.rows << " with " << place.runs.pitch;
    }
    ++number;
  }
  return success();
}

bool AliasingChecker::mayShare(const Command &command, unsigned read, unsigned write) {
  const Place &from = places[command.reads[read]], &to = places[command.writes[write]];
  if (command.accumulates && read + 1 == command.reads.size() && write == 0)
    return true;
  if (!command.kernel || from.runs != to.runs)
    return false;
  auto [it, isNew] = overwrites.try_emplace({command.kernel, read, write}, false);
  if (isNew)
    it->second = readsBeforeWriting(command.kernel, read, write);
  return it->second;
}

bool AliasingChecker::touch(Value x, Value y) {
  return places[x].arena == places[y].arena && overlap(places[x].runs, places[y].runs);
}

// Checks that a result shares no bytes with another result. A result may share bytes with an
// operand only if the command reads the operand's bytes before it writes the result's.
LogicalResult AliasingChecker::checkSharing(const Command &command) {
  size_t reads = command.reads.size();
  for (size_t write = 0; write < command.writes.size(); ++write) {
    Value result = command.writes[write];
    for (size_t other = 0; other < write; ++other)
      if (touch(result, command.writes[other]))
        return fault(command) << "writes two results to the same bytes, "
                              << describe(places[result], places[result].runs);
    for (size_t read = 0; read < reads; ++read)
      if (touch(result, command.reads[read]) && !mayShare(command, unsigned(read), unsigned(write)))
        return fault(command) << "writes " << command.names[reads + write] << " over "
                              << command.names[read] << ", number " << read
                              << ", which it may still have to read";
  }
  if (command.scratch)
    for (Value value : llvm::concat<const Value>(command.reads, command.writes))
      if (touch(command.scratch, value))
        return fault(command) << "has an operand or result in its scratch memory, "
                              << describe(places[command.scratch], places[value].runs);
  return success();
}

LogicalResult AliasingChecker::checkOperands(const Command &command) {
  for (Value value : command.op->getOperands())
    if (const Place &place = places[value];
        place.slice && (command.index < place.first || command.index > place.last))
      return fault(command) << "uses a slice that lives from command " << place.first << " to "
                            << place.last;
  return failure(failed(checkLayouts(command)) || failed(checkSharing(command)));
}

// Checks that a command accesses no bytes that running collectives write, and writes no bytes that
// they read. Two collectives may share bytes if one starts after the other has ended.
LogicalResult AliasingChecker::checkStreams(const Command &command) {
  if (isa<plan_ir::WaitOp>(command.op)) {
    auto waited = endedWith.find(command.writes.front());
    if (waited == endedWith.end())
      return fault(command) << "waits for what no collective has started to write";
    llvm::erase_if(started, [&](const Command &other) {
      return other.index < waited->second[plan_ir::axisOf(other.op)];
    });
    return success();
  }
  // `ended` says which collectives have ended when `command` starts. If `command` is async, these
  // are the earlier ones along its axis, those whose results it reads, and all that ended before
  // the start of one of these. If `command` is a collective that is not async, all earlier ones
  // have ended.
  PerAxis ended{};
  const bool isAsync = plan_ir::isAsync(command.op);
  if (isAsync) {
    ended = endedWithLast[plan_ir::axisOf(command.op)];
    for (const Command &other : started)
      if (llvm::is_contained(command.reads, other.writes.front()))
        for (auto [mine, its] : llvm::zip(ended, endedWith[other.writes.front()]))
          mine = std::max(mine, its);
  } else if (plan_ir::isCollective(command.op)) {
    ended.fill(command.index);
  }
  for (const Command &other : started) {
    if (other.index < ended[plan_ir::axisOf(other.op)])
      continue;
    for (Value value : command.op->getOperands()) {
      const bool isRead = !llvm::is_contained(command.writes, value) && value != command.scratch;
      if (llvm::any_of(other.writes, [&](Value written) { return touch(value, written); }) ||
          (!isRead && llvm::any_of(other.reads, [&](Value read) { return touch(value, read); })))
        return fault(command) << (isRead ? "reads " : "writes ")
                              << describe(places[value], places[value].runs) << ", which command "
                              << other.index << ", " << nameOf(other.op) << ", uses until its wait";
    }
  }
  if (isAsync) {
    const unsigned axis = plan_ir::axisOf(command.op);
    ended[axis] = command.index + 1;
    endedWithLast[axis] = ended;
    endedWith[command.writes.front()] = ended;
    started.push_back(command);
  }
  return success();
}

// Compares the operands of `computed` with the slices that `command` reads. Returns the number of
// the first operand that differs, and the difference.
std::optional<std::pair<unsigned, ContentDifference>>
AliasingChecker::misread(const Command &command, const ComputedOp &computed) {
  for (auto [number, slice] : llvm::enumerate(command.reads)) {
    const Place &place = places[slice];
    Content found = memory[place.arena].read(place.runs);
    if (auto difference = findDifference(computed.reads[number], found))
      return std::make_pair(unsigned(number), *difference);
  }
  return std::nullopt;
}

// Returns the op of the function that `command` computes, or null.
ComputedOp *AliasingChecker::findComputed(const Command &command) {
  if (next < computedOps.size() && computedOps[next].signature == command.signature &&
      !misread(command, computedOps[next]))
    return &computedOps[next];
  auto it = computedBySignature.find(command.signature);
  if (it != computedBySignature.end())
    for (unsigned candidate : it->second)
      if (!misread(command, computedOps[candidate]))
        return &computedOps[candidate];
  return nullptr;
}

// Returns the op that a wrong command was probably meant to compute, or null. An op with the
// command's location is more likely than the first op that no command has computed.
ComputedOp *AliasingChecker::likelyComputed(const Command &command) {
  ComputedOp *likely = nullptr;
  if (auto it = computedBySignature.find(command.signature); it != computedBySignature.end())
    for (unsigned candidate : llvm::reverse(it->second)) {
      ComputedOp &computed = computedOps[candidate];
      if (computed.op->getLoc() == command.op->getLoc() && !isa<UnknownLoc>(computed.op->getLoc()))
        return &computed;
      if (!computed.done)
        likely = &computed;
    }
  return likely;
}

// Reports why a command computes no op of the function.
LogicalResult AliasingChecker::explain(const Command &command) {
  ComputedOp *meant = likelyComputed(command);
  if (!meant) {
    InFlightDiagnostic error = fault(command) << "computes nothing that the function asks for";
    if (next < computedOps.size())
      error << " at " << nameOf(computedOps[next].op);
    return error;
  }
  auto [number, difference] = *misread(command, *meant);
  const Place &place = places[command.reads[number]];
  return fault(command) << "reads " << command.names[number] << ", number " << number << ", at "
                        << describe(place, place.runs) << ": where "
                        << describe(difference.expected) << " should be, there is "
                        << describe(difference.found);
}

void AliasingChecker::execute(const Command &command, ComputedOp &computed) {
  if (command.scratch)
    memory[places[command.scratch].arena].forget(places[command.scratch].runs);
  for (auto [slice, token] : llvm::zip(command.writes, computed.results)) {
    const Place &place = places[slice];
    memory[place.arena].write(place.runs, contentOf(token, place.runs.bytes()), command.index);
  }
  computed.done = true;
  while (next < computedOps.size() && computedOps[next].done)
    ++next;
}

LogicalResult AliasingChecker::copy(plan_ir::CopyOp op, int64_t index) {
  const Place &from = places[op.getX()], &to = places[op.getD()];
  if (from.runs.bytes() != to.runs.bytes() ||
      (from.runs.rows > 1 && to.runs.rows > 1 && from.runs.rows != to.runs.rows))
    return op.emitError("copies ") << from.runs.bytes() << " bytes in " << from.runs.rows
                                   << " runs to " << to.runs.bytes() << " in " << to.runs.rows;
  memory[to.arena].write(to.runs, memory[from.arena].read(from.runs), index);
  return success();
}

LogicalResult AliasingChecker::runCommands() {
  for (auto [index, op] : llvm::enumerate(commands)) {
    FailureOr<Command> command = describe(*op);
    if (failed(command))
      return failure();
    command->index = int64_t(index);
    if (failed(checkOperands(*command)) || failed(checkStreams(*command)))
      return failure();
    if (auto copied = dyn_cast<plan_ir::CopyOp>(op)) {
      if (failed(copy(copied, command->index)))
        return failure();
      continue;
    }
    ComputedOp *computed = findComputed(*command);
    if (!computed)
      return explain(*command);
    execute(*command, *computed);
  }
  if (!started.empty())
    return fault(started.front()) << "is never waited for";
  return success();
}

// Checks that every variable contains the value that was stored to it or, without a store, its old
// contents.
LogicalResult AliasingChecker::checkEnd() {
  for (const Variable &variable : variables)
    if (auto difference = findDifference(stored[variable.arena].read(variable.runs()),
                                         memory[variable.arena].read(variable.runs())))
      return planned.emitError("@")
             << planned.getSymName() << " leaves the wrong value in variable @" << variable.name
             << ": where " << describe(difference->expected) << " should be, there is "
             << describe(difference->found);
  return success();
}

LogicalResult AliasingChecker::run() {
  collectSymbols();
  return failure(failed(checkVariables()) || failed(checkSlices()) || failed(evaluateFunction()) ||
                 failed(runCommands()) || failed(checkEnd()));
}

LogicalResult lmc::checkAliasing(func::FuncOp function, plan_ir::FunctionOp planned) {
  return AliasingChecker(function, planned).run();
}

namespace {
struct CheckAliasingPass : lmc::impl::CheckAliasingPassBase<CheckAliasingPass> {
  using CheckAliasingPassBase::CheckAliasingPassBase;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto tensors = module.lookupSymbol<ModuleOp>(kTensors);
    if (!tensors) {
      module.emitError("has no functions on tensors to check; plan-emit-commands runs first");
      return signalPassFailure();
    }
    for (auto planned : module.getOps<plan_ir::FunctionOp>()) {
      auto function = tensors.lookupSymbol<func::FuncOp>(planned.getSymName());
      if (!function) {
        planned.emitError("has no function on tensors");
        return signalPassFailure();
      }
      if (failed(checkAliasing(function, planned)))
        return signalPassFailure();
    }
    tensors.erase();
  }
};
} // namespace
