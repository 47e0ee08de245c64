#include "test/passes/buffers/TokenInterpreter.h"

#include "dialects/kern/Kern.h"
#include "dialects/lm/Lm.h"

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

#include <functional>
#include <map>
#include <random>

using namespace mlir;
using namespace lmc;

namespace {

//===-- Tokens ------------------------------------------------------------------------------===//

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t hash(uint64_t a, uint64_t b) { return mix(a * 0x9e3779b97f4a7c15 + b + 0x632be59bd9b4e019); }

uint64_t hashOf(StringRef text) { return mix(llvm::hash_value(text)); }
// Of what MLIR keeps once.
template <typename Unique> uint64_t hashOf(Unique unique) {
  return mix(uint64_t(uintptr_t(unique.getAsOpaquePointer())));
}

RankedTensorType contentOf(Value value) {
  if (auto slice = dyn_cast<plan_ir::SliceType>(value.getType()))
    return slice.getContent();
  return cast<RankedTensorType>(value.getType());
}

int64_t widthOf(RankedTensorType type) { return int64_t(type.getElementTypeBitWidth()) / 8; }

// Elements of a tensor somewhere, by their row-major number.
struct Elements {
  std::function<uint64_t &(int64_t)> byte; // by the number of the byte in the dense tensor
  int64_t count = 0, width = 1;

  uint64_t get(int64_t element) const {
    uint64_t value = 0;
    for (int64_t i = 0; i < width; ++i)
      value = hash(value, byte(element * width + i));
    return value;
  }
  void set(int64_t element, uint64_t value) const {
    for (int64_t i = 0; i < width; ++i)
      byte(element * width + i) = hash(value, uint64_t(i));
  }
  uint64_t all() const {
    uint64_t value = 0;
    for (int64_t i = 0; i < count; ++i)
      value = hash(value, get(i));
    return value;
  }
};

using Indices = SmallVector<int64_t, 6>;

int64_t linear(ArrayRef<int64_t> indices, ArrayRef<int64_t> shape) {
  int64_t element = 0;
  for (auto [index, extent] : llvm::zip(indices, shape))
    element = element * extent + index;
  return element;
}

Indices delinear(int64_t element, ArrayRef<int64_t> shape) {
  Indices indices(shape.size());
  for (size_t dim = shape.size(); dim-- > 0; element /= shape[dim])
    indices[dim] = element % shape[dim];
  return indices;
}

//===-- Kernels -----------------------------------------------------------------------------===//

// Runs one kernel: items in the order that `random` gives.
class KernelRun {
public:
  KernelRun(kern::KernelOp kernel, bool flat, ArrayRef<Elements> inputs,
            ArrayRef<Elements> results, std::mt19937_64 &random)
      : kernel(kernel), body(kernel.getBody().front()), flat(flat), inputs(inputs),
        results(results), random(random) {}

  void run();

private:
  // A result, or a part of one that tensor.insert_slice puts at its place.
  struct Output {
    unsigned result;
    Value value;
    tensor::InsertSliceOp insert;
  };

  void findLoops();
  void findOutputs();
  void runRow(int64_t row);
  void runPass(unsigned pass, const Indices &outer, int64_t row);
  int64_t elementOf(const Output &output, const Indices &at) const;
  void runColumn(int64_t column);
  uint64_t tensorAt(Value tensor, const Indices &at);
  using Known = llvm::SmallDenseMap<Value, uint64_t, 16>;
  uint64_t scalarAt(Value scalar, linalg::GenericOp generic, const Indices &at, Known &known);
  uint64_t read(unsigned input, int64_t element);
  unsigned passesBefore(Value tensor);
  uint64_t termAt(OpResult reduction, const Indices &at) {
    Known known;
    return scalarAt(termOf(reduction), cast<linalg::GenericOp>(reduction.getOwner()), at, known);
  }
  static Value termOf(OpResult reduction);
  Indices at(const Indices &outer, int64_t lane) {
    Indices indices = outer;
    indices.push_back(lane);
    return indices;
  }
  bool covers(const Output &output) const {
    return ArrayRef<int64_t>(domain) ==
           cast<RankedTensorType>(output.value.getType()).getShape();
  }

  kern::KernelOp kernel;
  Block &body;
  bool flat;
  ArrayRef<Elements> inputs, results;
  std::mt19937_64 &random;
  SmallVector<int64_t> domain;
  std::vector<OpResult> reductions;
  std::vector<Output> outputs, blockSums; // the latter sum `blockRows` rows each, by columns
  int64_t blockRows = 1;
  llvm::DenseMap<Value, unsigned> passesByTensor;
  llvm::DenseMap<Value, uint64_t> reduced; // of the item under way

  // What a pass reads does not vary along the row it reads before the row: such reads are
  // found by trying, as those that are the same at every lane.
  enum class Reads { Direct, Traced, Replayed } mode = Reads::Direct;
  std::vector<std::pair<unsigned, int64_t>> trace;
  std::vector<std::optional<uint64_t>> early;
  size_t nextRead = 0;
};

} // namespace

static bool reduces(Operation *op) {
  auto generic = dyn_cast_or_null<linalg::GenericOp>(op);
  return generic && generic.getNumReductionLoops() > 0;
}

// Loops over (block of rows, row of it, column), the second reduced.
static bool sumsBlocks(Operation *op) {
  return reduces(op) && cast<linalg::GenericOp>(op).getNumLoops() == 3 &&
         cast<linalg::GenericOp>(op).getIteratorTypesArray()[1] == utils::IteratorType::reduction;
}

unsigned KernelRun::passesBefore(Value tensor) {
  Operation *op = tensor.getDefiningOp();
  if (!isa_and_nonnull<linalg::GenericOp>(op))
    return 0;
  if (auto it = passesByTensor.find(tensor); it != passesByTensor.end())
    return it->second;
  unsigned passes = 0;
  for (Value operand : op->getOperands())
    passes = std::max(passes, passesBefore(operand));
  return passesByTensor[tensor] = passes + (reduces(op) ? 1 : 0);
}

Value KernelRun::termOf(OpResult reduction) {
  auto generic = cast<linalg::GenericOp>(reduction.getOwner());
  BlockArgument sum = generic.getRegionOutputArgs()[reduction.getResultNumber()];
  Operation *combiner =
      generic.getBody()->getTerminator()->getOperand(reduction.getResultNumber()).getDefiningOp();
  return combiner->getOperand(combiner->getOperand(0) == sum ? 1 : 0);
}

uint64_t KernelRun::read(unsigned input, int64_t element) {
  if (mode == Reads::Traced) {
    trace.emplace_back(input, element);
    return inputs[input].get(element);
  }
  if (mode == Reads::Replayed) {
    if (std::optional<uint64_t> &value = early[nextRead++])
      return *value;
  }
  return inputs[input].get(element);
}

uint64_t KernelRun::tensorAt(Value tensor, const Indices &at) {
  if (auto argument = dyn_cast<BlockArgument>(tensor))
    return read(argument.getArgNumber(),
                linear(at, cast<RankedTensorType>(tensor.getType()).getShape()));
  if (auto it = reduced.find(tensor); it != reduced.end())
    return it->second;
  auto generic = tensor.getDefiningOp<linalg::GenericOp>();
  if (!generic) { // a constant or a fill
    auto fill = tensor.getDefiningOp<linalg::FillOp>();
    auto constant = (fill ? fill.value() : tensor).getDefiningOp<arith::ConstantOp>();
    return constant ? hashOf(constant.getValue()) : 0;
  }
  unsigned number = cast<OpResult>(tensor).getResultNumber();
  Known known;
  return scalarAt(generic.getBody()->getTerminator()->getOperand(number), generic, at, known);
}

static int64_t valueAt(AffineExpr expr, const Indices &at) {
  if (auto dim = dyn_cast<AffineDimExpr>(expr))
    return at[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(expr))
    return constant.getValue();
  auto binary = cast<AffineBinaryOpExpr>(expr);
  int64_t x = valueAt(binary.getLHS(), at), y = valueAt(binary.getRHS(), at);
  switch (expr.getKind()) {
  case AffineExprKind::Add:
    return x + y;
  case AffineExprKind::Mul:
    return x * y;
  case AffineExprKind::FloorDiv:
    return x / y;
  default:
    return x % y;
  }
}

static Indices indicesAt(AffineMap map, const Indices &at) {
  Indices indices;
  for (AffineExpr expr : map.getResults())
    indices.push_back(valueAt(expr, at));
  return indices;
}

// `scalar` of the body of `generic` at the loop indices `at`. Integers that say where to read
// are exact, everything else is a hash.
uint64_t KernelRun::scalarAt(Value scalar, linalg::GenericOp generic, const Indices &at,
                             Known &known) {
  if (auto it = known.find(scalar); it != known.end())
    return it->second;
  if (auto argument = dyn_cast<BlockArgument>(scalar)) {
    OpOperand *operand = generic.getMatchingOpOperand(argument);
    uint64_t value =
        tensorAt(operand->get(), indicesAt(generic.getMatchingIndexingMap(operand), at));
    return known[scalar] = value;
  }
  Operation *op = scalar.getDefiningOp();
  if (auto index = dyn_cast<linalg::IndexOp>(op))
    return uint64_t(at[index.getDim()]);
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    if (auto integer = dyn_cast<IntegerAttr>(constant.getValue()))
      return uint64_t(integer.getInt());
    return hashOf(constant.getValue());
  }
  if (auto extract = dyn_cast<tensor::ExtractOp>(op)) {
    Indices indices;
    auto shape = extract.getTensor().getType().getShape();
    for (auto [index, extent] : llvm::zip(extract.getIndices(), shape))
      indices.push_back(int64_t(scalarAt(index, generic, at, known) % uint64_t(extent)));
    uint64_t value = tensorAt(extract.getTensor(), indices);
    return known[scalar] = value;
  }
  uint64_t value = hashOf(op->getName());
  for (Value operand : op->getOperands())
    value = hash(value, scalarAt(operand, generic, at, known));
  return known[scalar] = value;
}

// The element of the result that `output` has at its own indices `at`.
int64_t KernelRun::elementOf(const Output &output, const Indices &at) const {
  Indices indices = at;
  ArrayRef<int64_t> shape = cast<RankedTensorType>(output.value.getType()).getShape();
  if (tensor::InsertSliceOp insert = output.insert) {
    indices.clear();
    shape = insert.getDestType().getShape();
    llvm::SmallBitVector dropped = insert.getDroppedDims();
    size_t next = 0;
    for (auto [dim, offset] : llvm::enumerate(insert.getStaticOffsets()))
      indices.push_back(offset + (dropped.test(unsigned(dim)) ? 0 : at[next++]));
  }
  return linear(indices, shape);
}

// One pass over row number `row`, whose outer indices are `outer`.
void KernelRun::runPass(unsigned pass, const Indices &outer, int64_t row) {
  std::vector<OpResult> sums;
  std::vector<Output> rows, wholes, blocks; // results written after the pass, and in it
  for (OpResult reduction : reductions)
    if (passesBefore(reduction) == pass + 1)
      sums.push_back(reduction);
  for (const Output &output : outputs)
    if (passesBefore(output.value) == pass)
      (covers(output) ? wholes : rows).push_back(output);
  for (const Output &output : blockSums)
    if (passesBefore(output.value) == pass + 1)
      blocks.push_back(output);

  std::vector<uint64_t> rowValues, sumValues(sums.size());
  for (const Output &output : rows)
    rowValues.push_back(tensorAt(output.value, outer));
  int64_t block = row / blockRows, rowInBlock = row % blockRows;
  auto evaluate = [&](int64_t lane, std::vector<uint64_t> &values) {
    nextRead = 0;
    for (size_t s = 0; s < sums.size(); ++s) {
      uint64_t term = termAt(sums[s], at(outer, lane));
      if (mode != Reads::Traced)
        sumValues[s] = hash(sumValues[s], term);
    }
    for (const Output &output : wholes)
      values.push_back(tensorAt(output.value, at(outer, lane)));
    for (const Output &output : blocks)
      values.push_back(termAt(cast<OpResult>(output.value), {block, rowInBlock, lane}));
  };

  int64_t extent = domain.back();
  std::vector<std::pair<unsigned, int64_t>> first;
  std::vector<bool> varies;
  mode = Reads::Traced;
  for (int64_t lane = 0; lane < extent; ++lane) {
    trace.clear();
    std::vector<uint64_t> unused;
    evaluate(lane, unused);
    if (lane == 0) {
      first = trace;
      varies.assign(trace.size(), extent == 1);
    }
    for (size_t i = 0; i < trace.size(); ++i)
      if (trace[i] != first[i])
        varies[i] = true;
  }
  early.assign(first.size(), std::nullopt);
  for (size_t i = 0; i < first.size(); ++i)
    if (!varies[i])
      early[i] = inputs[first[i].first].get(first[i].second);
  mode = Reads::Replayed;
  int64_t step = 1 + int64_t(random() % 8);
  for (int64_t lane = 0; lane < extent; lane += step) {
    std::vector<std::vector<uint64_t>> values;
    for (int64_t l = lane; l < std::min(extent, lane + step); ++l)
      evaluate(l, values.emplace_back());
    for (size_t l = 0; l < values.size(); ++l) {
      for (size_t w = 0; w < wholes.size(); ++w)
        results[wholes[w].result].set(elementOf(wholes[w], at(outer, lane + int64_t(l))),
                                      values[l][w]);
      // A block's sums grow in their place, row by row.
      for (size_t i = 0; i < blocks.size(); ++i) {
        const Elements &sum = results[blocks[i].result];
        int64_t element = block * extent + lane + int64_t(l);
        uint64_t before = rowInBlock == 0 ? 0 : sum.get(element);
        sum.set(element, hash(before, values[l][wholes.size() + i]));
      }
    }
  }
  mode = Reads::Direct;
  for (size_t s = 0; s < sums.size(); ++s) {
    auto generic = cast<linalg::GenericOp>(sums[s].getOwner());
    Value init = generic.getDpsInitOperand(sums[s].getResultNumber())->get();
    reduced[sums[s]] = hash(sumValues[s], tensorAt(init, outer));
  }
  for (size_t i = 0; i < rows.size(); ++i)
    results[rows[i].result].set(elementOf(rows[i], outer), rowValues[i]);
}

void KernelRun::runRow(int64_t row) {
  reduced.clear();
  unsigned last = 0;
  for (OpResult reduction : reductions)
    last = std::max(last, passesBefore(reduction));
  for (const Output &output : llvm::concat<Output>(outputs, blockSums))
    last = std::max(last, passesBefore(output.value));
  Indices outer = delinear(row, ArrayRef<int64_t>(domain).drop_back());
  for (unsigned pass = 0; pass <= last; ++pass)
    runPass(pass, outer, row);
}

void KernelRun::runColumn(int64_t column) {
  reduced.clear();
  for (OpResult reduction : reductions) {
    uint64_t sum = 0;
    for (int64_t row = 0; row < domain[0]; ++row)
      sum = hash(sum, termAt(reduction, {row, column}));
    auto generic = cast<linalg::GenericOp>(reduction.getOwner());
    Value init = generic.getDpsInitOperand(reduction.getResultNumber())->get();
    reduced[reduction] = hash(sum, tensorAt(init, {column}));
  }
  std::vector<uint64_t> values;
  for (const Output &output : outputs)
    values.push_back(tensorAt(output.value, {column}));
  for (size_t i = 0; i < outputs.size(); ++i)
    results[outputs[i].result].set(column, values[i]);
}

void KernelRun::findOutputs() {
  for (auto [number, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    if (sumsBlocks(value.getDefiningOp())) {
      blockSums.push_back({unsigned(number), value, {}});
      continue;
    }
    Value whole = value;
    while (auto insert = whole.getDefiningOp<tensor::InsertSliceOp>()) {
      outputs.push_back({unsigned(number), insert.getSource(), insert});
      whole = insert.getDest();
    }
    if (whole == value)
      outputs.push_back({unsigned(number), value, {}});
  }
}

void KernelRun::findLoops() {
  for (auto generic : body.getOps<linalg::GenericOp>()) {
    if (!reduces(generic))
      continue;
    SmallVector<int64_t> ranges = generic.getStaticLoopRanges();
    if (sumsBlocks(generic)) {
      blockRows = ranges[1];
      domain = {ranges[0] * ranges[1], ranges[2]};
      continue;
    }
    domain = ranges;
    for (OpResult result : generic->getResults())
      reductions.push_back(result);
  }
  if (domain.empty())
    for (const Output &output : outputs)
      if (auto shape = cast<RankedTensorType>(output.value.getType()).getShape();
          shape.size() >= domain.size())
        domain.assign(shape.begin(), shape.end());
}

void KernelRun::run() {
  findOutputs();
  findLoops();
  bool columns = kernel.getHero() == kern::Hero::ColumnReduction;
  if (domain.empty()) // a scalar: a row of one
    flat = true;
  int64_t items = 1;
  for (int64_t extent : columns ? ArrayRef<int64_t>(domain).drop_front()
                        : flat  ? ArrayRef<int64_t>(domain)
                                : ArrayRef<int64_t>(domain).drop_back())
    items *= extent;
  items /= blockRows;
  std::vector<int64_t> order(static_cast<size_t>(items));
  for (int64_t i = 0; i < items; ++i)
    order[size_t(i)] = i;
  std::shuffle(order.begin(), order.end(), random);
  for (int64_t item : order) {
    if (columns) {
      runColumn(item);
    } else if (!flat) {
      for (int64_t row = 0; row < blockRows; ++row)
        runRow(item * blockRows + row);
    } else {
      std::vector<uint64_t> values;
      for (const Output &output : outputs)
        values.push_back(tensorAt(output.value, delinear(item, domain)));
      for (size_t i = 0; i < outputs.size(); ++i)
        results[outputs[i].result].set(elementOf(outputs[i], delinear(item, domain)), values[i]);
    }
  }
}

//===-- Library calls -----------------------------------------------------------------------===//

namespace {

uint64_t kindOf(ArrayRef<bool> flags, StringRef name) {
  uint64_t kind = hashOf(name);
  for (bool flag : flags)
    kind = hash(kind, flag);
  return kind;
}

// d = op(a) op(b) (+ d) (+ bias), with `rows` and `columns` of d.
void runOneGemm(const Elements &a, const Elements &b, const Elements *bias, const Elements &d,
                const std::vector<uint64_t> *sum, bool transposeA, bool transposeB, int64_t rows,
                int64_t columns) {
  int64_t depth = a.count / rows;
  std::vector<uint64_t> left(size_t(rows), 0), right(size_t(columns), 0);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < depth; ++k)
      left[size_t(i)] = hash(left[size_t(i)], a.get(transposeA ? k * rows + i : i * depth + k));
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t k = 0; k < depth; ++k)
      right[size_t(j)] =
          hash(right[size_t(j)], b.get(transposeB ? j * depth + k : k * columns + j));
  std::vector<uint64_t> values;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) {
      uint64_t value = hash(left[size_t(i)], right[size_t(j)]);
      if (bias)
        value = hash(value, bias->get(j));
      if (sum)
        value = hash(value, (*sum)[size_t(i * columns + j)]);
      values.push_back(value);
    }
  for (int64_t e = 0; e < d.count; ++e)
    d.set(e, values[size_t(e)]);
}

// Returns part `number` of `parts` of the elements.
Elements partOf(const Elements &all, int64_t number, int64_t parts) {
  const int64_t count = all.count / parts, first = number * count * all.width;
  return {[byte = all.byte, first](int64_t i) -> uint64_t & { return byte(first + i); }, count,
          all.width};
}

// `batch` products; a, b, d and `sum` are stacks of their matrices.
void runGemm(const Elements &a, const Elements &b, const Elements *bias, const Elements &d,
             const std::vector<uint64_t> *sum, bool transposeA, bool transposeB, int64_t batch,
             int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < batch; ++i) {
    std::vector<uint64_t> part;
    if (sum)
      part.assign(sum->begin() + i * rows * columns, sum->begin() + (i + 1) * rows * columns);
    runOneGemm(partOf(a, i, batch), partOf(b, i, batch), bias, partOf(d, i, batch),
               sum ? &part : nullptr, transposeA, transposeB, rows, columns);
  }
}

// Every element of every result depends on every element of every operand.
void runWhole(uint64_t kind, ArrayRef<Elements> operands, ArrayRef<Elements> results,
              const std::vector<uint64_t> *sum = nullptr) {
  for (const Elements &operand : operands)
    kind = hash(kind, operand.all());
  for (auto [number, result] : llvm::enumerate(results))
    for (int64_t e = 0; e < result.count; ++e)
      result.set(e, hash(hash(kind, hash(number, uint64_t(e))), sum ? (*sum)[size_t(e)] : 0));
}

std::vector<uint64_t> valuesOf(const Elements &elements) {
  std::vector<uint64_t> values;
  for (int64_t e = 0; e < elements.count; ++e)
    values.push_back(elements.get(e));
  return values;
}

template <typename Op> uint64_t attentionKind(Op op, StringRef name) {
  uint64_t kind = hashOf(name);
  for (uint64_t part : {uint64_t(op.getHeadDim()), uint64_t(op.getSeq()), uint64_t(op.getWindow()),
                        uint64_t(op.getScale().convertToDouble() * 1e9)})
    kind = hash(kind, part);
  return kind;
}

// What an attention reads: `operands`, then the starts of documents where it has them.
template <typename Op>
SmallVector<Value> withOptional(std::initializer_list<Value> operands, Op op) {
  SmallVector<Value> reads(operands);
  if (op.getStarts())
    reads.push_back(op.getStarts());
  if constexpr (requires { op.getCos(); })
    if (op.getCos())
      reads.append({op.getCos(), op.getSin()});
  return reads;
}

llvm::StringMap<kern::KernelOp> kernelsOf(ModuleOp module) {
  llvm::StringMap<kern::KernelOp> kernels;
  for (auto kernel : module.getOps<kern::KernelOp>())
    kernels[kernel.getSymName()] = kernel;
  return kernels;
}

// Whether an item of an elementwise kernel may be one element: nothing is read elsewhere.
bool readsOnlyItsElement(kern::KernelOp kernel) {
  bool plain = kernel.getHero() == kern::Hero::Elementwise;
  kernel.walk([&](linalg::GenericOp generic) {
    for (AffineMap map : generic.getIndexingMapsArray())
      plain &= map.isIdentity() || map.getNumResults() == 0;
  });
  return plain;
}

constexpr StringRef kState = "state";

ByteTokens initialState(ModuleOp placed) {
  int64_t bytes = 0;
  for (auto arena : placed.getOps<plan_ir::ArenaOp>())
    if (arena.getSymName() == kState)
      bytes = int64_t(arena.getBytes());
  ByteTokens state;
  uint64_t seed = hashOf(kState);
  for (int64_t i = 0; i < bytes; ++i)
    state.push_back(hash(seed, uint64_t(i)));
  return state;
}

//===-- The function ------------------------------------------------------------------------===//

class FunctionRun {
public:
  FunctionRun(func::FuncOp function, ModuleOp placed)
      : function(function), kernels(kernelsOf(function->getParentOfType<ModuleOp>())) {
    for (auto variable : placed.getOps<plan_ir::VariableOp>())
      offsets[variable.getSymName()] = int64_t(variable.getOffset());
    before = after = initialState(placed);
  }

  FunctionOutcome run() {
    std::set<uint64_t> computed;
    for (Operation &op : function.getBody().front()) {
      run(op);
      if (isa<kern::KernDialect>(op.getDialect()))
        for (Value result : op.getResults())
          computed.insert(elements(result).all());
    }
    return {after, computed};
  }

private:
  void run(Operation &op);
  ByteTokens &make(Value value) {
    auto type = contentOf(value);
    ByteTokens &bytes = tensors[value];
    bytes.assign(size_t(type.getNumElements() * widthOf(type)), 0);
    return bytes;
  }
  Elements elements(Value value) {
    ByteTokens *bytes = &tensors.at(value);
    auto type = contentOf(value);
    return {[bytes](int64_t i) -> uint64_t & { return (*bytes)[size_t(i)]; },
            type.getNumElements(), widthOf(type)};
  }
  SmallVector<Elements> all(ValueRange values) {
    SmallVector<Elements> list;
    for (Value value : values)
      list.push_back(elements(value));
    return list;
  }
  // Bytes of a slice, in its own order, by their place in the whole.
  template <typename Slice>
  void forEachByte(Slice slice, RankedTensorType whole,
                   llvm::function_ref<void(size_t, size_t)> use) {
    SmallVector<int64_t> sizes(slice.getStaticSizes()), offsets(slice.getStaticOffsets());
    int64_t count = 1, width = widthOf(whole);
    for (int64_t size : sizes)
      count *= size;
    for (int64_t e = 0; e < count; ++e) {
      Indices indices = delinear(e, sizes);
      for (auto [index, offset] : llvm::zip(indices, offsets))
        index += offset;
      for (int64_t i = 0; i < width; ++i)
        use(size_t(e * width + i), size_t(linear(indices, whole.getShape()) * width + i));
    }
  }

  func::FuncOp function;
  llvm::StringMap<kern::KernelOp> kernels;
  llvm::StringMap<int64_t> offsets;
  struct ValueOrder {
    bool operator()(Value x, Value y) const { return x.getAsOpaquePointer() < y.getAsOpaquePointer(); }
  };
  std::map<Value, ByteTokens, ValueOrder> tensors;
  ByteTokens before, after;
  std::mt19937_64 random{1};
};

} // namespace

void FunctionRun::run(Operation &op) {
  if (!isa<lm::StoreOp, func::ReturnOp>(op))
    for (Value result : op.getResults())
      make(result);
  auto sum = [&](Value acc) {
    return acc ? std::optional(valuesOf(elements(acc))) : std::nullopt;
  };
  auto pointer = [](std::optional<std::vector<uint64_t>> &values) {
    return values ? &*values : nullptr;
  };
  llvm::TypeSwitch<Operation *>(&op)
      .Case([&](lm::LoadOp load) {
        ByteTokens &bytes = tensors[load];
        std::copy_n(before.begin() + offsets.at(load.getVariable()), bytes.size(), bytes.begin());
      })
      .Case([&](lm::StoreOp store) {
        const ByteTokens &bytes = tensors.at(store.getValue());
        llvm::copy(bytes, after.begin() + offsets.at(store.getVariable()));
      })
      .Case([&](tensor::ExtractSliceOp slice) {
        ByteTokens &to = tensors[slice], &from = tensors.at(slice.getSource());
        forEachByte(slice, slice.getSourceType(), [&](size_t i, size_t j) { to[i] = from[j]; });
      })
      .Case([&](tensor::InsertSliceOp slice) {
        ByteTokens &to = tensors[slice], &from = tensors.at(slice.getSource());
        to = tensors.at(slice.getDest());
        forEachByte(slice, slice.getDestType(), [&](size_t i, size_t j) { to[j] = from[i]; });
      })
      .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp>(
          [&](auto reshape) { tensors[reshape] = tensors.at(reshape.getSrc()); })
      .Case([&](kern::LaunchOp launch) {
        kern::KernelOp kernel = kernels.at(launch.getKernel());
        KernelRun(kernel, readsOnlyItsElement(kernel), all(launch.getInputs()),
                  all(launch.getResults()), random)
            .run();
      })
      .Case([&](kern::GemmOp gemm) {
        auto acc = sum(gemm.getAcc() ? gemm.getAcc() : gemm.getResidual());
        std::optional<Elements> bias;
        if (gemm.getBias())
          bias = elements(gemm.getBias());
        runGemm(elements(gemm.getA()), elements(gemm.getB()), bias ? &*bias : nullptr,
                elements(gemm.getResult()), pointer(acc), gemm.getTransposeA(),
                gemm.getTransposeB(), int64_t(gemm.getBatch()),
                gemm.getType().getDimSize(0) / int64_t(gemm.getBatch()),
                gemm.getType().getDimSize(1));
      })
      .Case([&](kern::LinearSwigluOp op) {
        runWhole(kindOf({op.getBoth()}, "linear_swiglu"), all(op.getOperands()),
                 all(op.getResults()));
      })
      .Case([&](kern::SwigluLinearGradOp op) {
        runWhole(kindOf({op.getBoth()}, "swiglu_linear_grad"), all(op.getOperands()),
                 all(op.getResults()));
      })
      .Case([&](kern::AttentionOp op) {
        runWhole(attentionKind(op, "attention"),
                 all(withOptional({op.getQ(), op.getK(), op.getV()}, op)), all(op.getResults()));
      })
      .Case([&](kern::AttentionGradOp op) {
        runWhole(attentionKind(op, "attention_grad"),
                 all(withOptional({op.getQ(), op.getK(), op.getV(), op.getOut(), op.getLse(),
                                 op.getDout()},
                                op)),
                 all(op.getResults()));
      })
      .Case([&](kern::ScatterAddOp scatter) {
        auto acc = sum(scatter.getAcc());
        runWhole(kindOf({bool(scatter.getAcc())}, "scatter_add"),
                 all({scatter.getIds(), scatter.getX()}), all(scatter.getResult()), pointer(acc));
      })
      .Case<func::ReturnOp, tensor::EmptyOp>([](auto) {});
}

//===-- The plan ----------------------------------------------------------------------------===//

namespace {

class PlanRun {
public:
  PlanRun(plan_ir::FunctionOp planned, const FunctionOutcome &function, uint64_t seed)
      : planned(planned), function(function), random(seed),
        kernels(kernelsOf(planned->getParentOfType<ModuleOp>())) {
    auto module = planned->getParentOfType<ModuleOp>();
    for (auto variable : module.getOps<plan_ir::VariableOp>())
      offsets[variable.getSymName()] = int64_t(variable.getOffset());
    for (auto arena : module.getOps<plan_ir::ArenaOp>()) {
      ByteTokens &bytes = arenas[arena.getSymName()];
      for (uint64_t i = 0; i < uint64_t(arena.getBytes()); ++i)
        bytes.push_back(random());
    }
    arenas[kState] = initialState(module);
  }

  PlanOutcome run() {
    int unasked = 0;
    for (Operation &op : planned.getBody().front()) {
      if (isa<plan_ir::SliceOp, plan_ir::VariableRefOp>(op))
        continue;
      made.clear();
      run(op);
      for (const Elements &result : made)
        unasked += !function.results.count(result.all());
    }
    return {arenas[kState], unasked, outside};
  }

private:
  void run(Operation &op);
  void runLaunch(plan_ir::LaunchOp launch);
  void runCopy(plan_ir::CopyOp copy);
  // In runs of its own, of `rows` as the command takes them.
  Elements elements(Value slice, int64_t rows, int64_t pitch);
  Elements dense(Value slice) { return elements(slice, 1, 0); }
  Elements asSliced(Value slice);
  Elements asTokens(Value slice); // rows of the first dimension, as attention counts them
  void scribble(const Elements &elements) {
    for (int64_t e = 0; e < elements.count; ++e)
      elements.set(e, random());
  }
  void runLibrary(uint64_t kind, ArrayRef<Elements> operands, SmallVector<Elements> results,
                  Value scratch);
  static std::pair<int64_t, int64_t> layoutOf(Value slice) {
    if (auto op = slice.getDefiningOp<plan_ir::SliceOp>())
      return {op.getRows(), op.getPitch()};
    auto ref = slice.getDefiningOp<plan_ir::VariableRefOp>();
    return {ref.getRows(), ref.getPitch()};
  }

  plan_ir::FunctionOp planned;
  const FunctionOutcome &function;
  std::mt19937_64 random;
  SmallVector<Elements> made; // by the command under way
  llvm::StringMap<kern::KernelOp> kernels;
  llvm::StringMap<int64_t> offsets;
  llvm::StringMap<ByteTokens> arenas;
  uint64_t nowhere = 0;
  bool outside = false;
};

} // namespace

Elements PlanRun::elements(Value slice, int64_t rows, int64_t pitch) {
  auto type = contentOf(slice);
  StringRef arena = kState;
  int64_t base;
  if (auto op = slice.getDefiningOp<plan_ir::SliceOp>()) {
    arena = op.getArena();
    base = int64_t(op.getOffset());
  } else {
    auto ref = slice.getDefiningOp<plan_ir::VariableRefOp>();
    base = offsets.lookup(ref.getVariable()) + int64_t(ref.getOffset());
  }
  ByteTokens *bytes = &arenas[arena];
  int64_t count = type.getNumElements(), width = widthOf(type);
  int64_t run = pitch && rows > 0 ? std::max<int64_t>(1, count * width / rows) : 0;
  return {[=, this](int64_t i) -> uint64_t & {
            int64_t address = base + (run ? i / run * pitch + i % run : i);
            if (address >= 0 && address < int64_t(bytes->size()))
              return (*bytes)[size_t(address)];
            outside = true;
            return nowhere;
          },
          count, width};
}

Elements PlanRun::asSliced(Value slice) {
  auto [rows, pitch] = layoutOf(slice);
  return elements(slice, rows, pitch);
}

Elements PlanRun::asTokens(Value slice) {
  return elements(slice, contentOf(slice).getDimSize(0), layoutOf(slice).second);
}

void PlanRun::runLaunch(plan_ir::LaunchOp launch) {
  kern::KernelOp kernel = kernels.lookup(launch.getKernel());
  SmallVector<Elements> args;
  for (auto [number, slice] : llvm::enumerate(launch.getArgs())) {
    int64_t rows = 1, pitch = 0;
    if (kernel.getArgPitches()) {
      rows = (*kernel.getArgRows())[number];
      pitch = (*kernel.getArgPitches())[number] * widthOf(contentOf(slice));
    }
    args.push_back(elements(slice, rows, pitch));
  }
  bool flat = readsOnlyItsElement(kernel);
  ArrayRef<Elements> all(args);
  KernelRun(kernel, flat, all.take_front(launch.getInputs()), all.drop_front(launch.getInputs()),
            random)
      .run();
  made.append(args.begin() + launch.getInputs(), args.end());
}

// Results are garbage from the start, and appear in any order at the end.
void PlanRun::runLibrary(uint64_t kind, ArrayRef<Elements> operands, SmallVector<Elements> results,
                         Value scratch) {
  for (const Elements &result : results)
    scribble(result);
  if (scratch)
    scribble(dense(scratch));
  for (const Elements &operand : operands)
    kind = hash(kind, operand.all());
  std::vector<size_t> order;
  for (size_t i = 0; i < results.size(); ++i)
    order.push_back(i);
  std::shuffle(order.begin(), order.end(), random);
  for (size_t number : order)
    for (int64_t e = 0; e < results[number].count; ++e)
      results[number].set(e, hash(hash(kind, hash(number, uint64_t(e))), 0));
  if (scratch)
    scribble(dense(scratch));
  made = results;
}

void PlanRun::runCopy(plan_ir::CopyOp copy) {
  Elements from = asSliced(copy.getX()), to = asSliced(copy.getD());
  // The bytes are copied, whatever they mean.
  std::vector<uint64_t> bytes;
  scribble(to);
  for (int64_t i = 0; i < from.count * from.width; ++i)
    bytes.push_back(from.byte(i));
  for (int64_t i = 0; i < std::min(from.count * from.width, to.count * to.width); ++i)
    to.byte(i) = bytes[size_t(i)];
}

void PlanRun::run(Operation &op) {
  auto sum = [&](bool accumulate, const Elements &d) {
    return accumulate ? std::optional(valuesOf(d)) : std::nullopt;
  };
  auto pointer = [](std::optional<std::vector<uint64_t>> &values) {
    return values ? &*values : nullptr;
  };
  llvm::TypeSwitch<Operation *>(&op)
      .Case([&](plan_ir::LaunchOp launch) { runLaunch(launch); })
      .Case([&](plan_ir::GemmOp gemm) {
        Elements d = dense(gemm.getD());
        auto acc = sum(gemm.getAccumulate(), d);
        scribble(d);
        if (gemm.getResidual())
          acc = valuesOf(dense(gemm.getResidual()));
        std::optional<Elements> bias;
        if (gemm.getBias())
          bias = dense(gemm.getBias());
        auto type = contentOf(gemm.getD());
        runGemm(dense(gemm.getA()), dense(gemm.getB()), bias ? &*bias : nullptr, d, pointer(acc),
                gemm.getTransposeA(), gemm.getTransposeB(), int64_t(gemm.getBatch()),
                type.getDimSize(0) / int64_t(gemm.getBatch()), type.getDimSize(1));
        made = {d};
      })
      .Case([&](plan_ir::AttentionOp op) {
        SmallVector<Elements> reads{asTokens(op.getQ()), asTokens(op.getK()), asTokens(op.getV())};
        if (op.getStarts())
          reads.push_back(dense(op.getStarts()));
        SmallVector<Elements> writes{dense(op.getOut()), dense(op.getLse())};
        if (op.getLargest())
          writes.push_back(dense(op.getLargest()));
        runLibrary(attentionKind(op, "attention"), reads, writes, {});
      })
      .Case([&](plan_ir::AttentionGradOp op) {
        SmallVector<Elements> reads{asTokens(op.getQ()), asTokens(op.getK()), asTokens(op.getV()),
                                    dense(op.getOut()), dense(op.getLse()), dense(op.getDout())};
        for (Value optional : {op.getStarts(), op.getCos(), op.getSin()})
          if (optional)
            reads.push_back(dense(optional));
        SmallVector<Elements> writes{asTokens(op.getDq()), asTokens(op.getDk()),
                                     asTokens(op.getDv())};
        if (op.getLargest())
          writes.push_back(dense(op.getLargest()));
        runLibrary(attentionKind(op, "attention_grad"), reads, writes, op.getWorkspace());
      })
      .Case([&](plan_ir::ScatterAddOp scatter) {
        Elements d = dense(scatter.getD());
        if (scatter.getWorkspace())
          scribble(dense(scatter.getWorkspace()));
        auto acc = sum(scatter.getAccumulate(), d);
        scribble(d);
        runWhole(kindOf({scatter.getAccumulate()}, "scatter_add"),
                 {dense(scatter.getIds()), dense(scatter.getX())}, d, pointer(acc));
        if (scatter.getWorkspace())
          scribble(dense(scatter.getWorkspace()));
        made = {d};
      })
      .Case([&](plan_ir::CopyOp copy) { runCopy(copy); });
}

FunctionOutcome lmc::runFunction(func::FuncOp function, ModuleOp placed) {
  return FunctionRun(function, placed).run();
}

PlanOutcome lmc::runPlan(plan_ir::FunctionOp planned, const FunctionOutcome &function,
                         uint64_t seed) {
  return PlanRun(planned, function, seed).run();
}
