// Prints kernels with the hero row_reduction. A thread block computes one row, or several rows one
// after the other. If rows are short, each warp of a block computes a row of its own.
//
//   kept      Each thread keeps its vectors of the row in registers through all passes, so inputs
//             are read once.
//   streamed  Each pass reads a row that is too long for registers again, a few vectors at a time.
//             One pass computes a maximum and the sum of exp(value - maximum), by the online
//             softmax (Milakov and Gimelshein 2018). For a very long row, shared memory keeps as
//             many vectors as fit, so that later passes do not read them again.
//
// The order of every sum depends only on the row's length and the vector width, not on the other
// ops of the kernel. Registers also hold the sums over a block of rows, if enough are free.
//
// Without shared memory, cross entropy over 131,072 columns of bf16 took 1.49 times as long on an
// H100 as predicted for its memory traffic. Two blocks on each SM work on 69 MB of rows, but the L2
// cache has only 50 MB (bench/results/gpu-2026-11-26-h100.md).
#include "compiler/targets/cuda/CudaEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

// Maximum threads per block; a block that is alone on its SM may have kMaxThreadsAlone threads.
constexpr int64_t kWarp = 32, kMaxThreads = 512, kMaxThreadsAlone = 1024;
// A row that is too long for registers gets a block of kMaxThreadsAlone threads, alone on its SM.
// This needs a GPU whose blocks may use at least this many bytes of shared memory.
constexpr uint32_t kLeastShared = 128 << 10;
constexpr int64_t kWarpsPerBlock = 4; // warps of a block if each warp computes a row
// A block computes several rows one after the other if the grid still has this many blocks. An H100
// runs 264 of them at a time. Tensors that all rows share are then loaded once per block.
constexpr int64_t kEnoughBlocks = 2048;
constexpr int64_t kRowBytesInFlight = 64; // bytes that a thread should load at a time
// The maximum number of vectors that a thread loads at a time; half if a row has over 512 threads.
constexpr int64_t kMaxStreamed = 16;

// Returns the number of a row's vectors per thread. They have at most 16 elements in all, so that
// registers are left for several inputs, a weight and sums in f32, and a row has enough warps.
int64_t chunksFor(int64_t width) { return width > 4 ? 2 : 4; }

// Returns the number of 32-bit registers in which a thread may keep a row. Enough are left for
// temporary values: a thread has its share of the SM's 65536 registers, and at most 255.
int64_t registersFor(int64_t threads) { return threads > 512 ? 36 : threads > 256 ? 80 : 144; }

// Returns true if value `a` at point `p` and value `b` at point `q` are the same computation.
bool sameValue(Value a, AffineMap p, Value b, AffineMap q) {
  auto through = [](Value &value, AffineMap &point) {
    while (true) {
      if (auto argument = dyn_cast<BlockArgument>(value)) {
        auto generic = dyn_cast<linalg::GenericOp>(argument.getOwner()->getParentOp());
        if (!generic)
          return;
        OpOperand *operand = generic.getMatchingOpOperand(argument);
        point = readPoint(generic, operand, point);
        value = operand->get();
        continue;
      }
      auto generic = value.getDefiningOp<linalg::GenericOp>();
      if (!generic || generic.getNumReductionLoops() > 0)
        return;
      value =
          generic.getBody()->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber());
    }
  };
  through(a, p);
  through(b, q);
  if (a == b)
    return p == q || matchPattern(a, m_Constant());
  Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
  if (!x || !y || x->getName() != y->getName() ||
      x->getAttrDictionary() != y->getAttrDictionary() ||
      x->getNumOperands() != y->getNumOperands() || x->getResultTypes() != y->getResultTypes() ||
      isa<linalg::LinalgOp, linalg::IndexOp>(x))
    return false;
  for (auto [s, t] : llvm::zip(x->getOperands(), y->getOperands()))
    if (!sameValue(s, p, t, q))
      return false;
  return true;
}

class RowPrinter : CudaEmitter {
public:
  RowPrinter(kern::KernelOp kernel, const RegionInfo &info, const CudaPrinting &how, bool mayKeep)
      : CudaEmitter(kernel, info), how(how), mayKeep(mayKeep) {}

  CudaKernel print() {
    findMapping();
    guardStores = readsWhatOthersWrite();
    startRow();
    CudaText row, body, sums;
    printRow(row);
    if (!kept)
      again.read += uint64_t((rowBytesLoaded - bytesOfRow(false)) *
                             std::max<int64_t>(vectors - chunksHeld * rowThreads, 0) * rows);

    int64_t offset = 0;
    if (!byWarp)
      for (auto [i, r] : llvm::enumerate(info.reductions)) {
        std::string type = cudaType(typeOf(r));
        body.line(type + " *const totals" + Twine(i) + " = reinterpret_cast<" + type +
                  " *>(sharedMemory()" + (offset ? " + " + std::to_string(offset) : "") + ");");
        offset += totalsBytes(r);
      }
    offset = held.empty() ? offset : int64_t(llvm::alignTo(offset, 128));
    for (const Held &place : held) {
      Type element = typeOf(place.input).getElementType();
      std::string type = cudaType(element);
      body.line(type + " *const " + place.name + " = reinterpret_cast<" + type +
                " *>(sharedMemory() + " + Twine(offset) + ");");
      offset += chunksHeld * rowThreads * width * element.getIntOrFloatBitWidth() / 8;
    }
    offset = std::max(offset, leastShared);
    if (kept && chunksOfRow == 1)
      body.line("const u32 c = " +
                (width == 1 ? threadOfRow()
                 : byWarp   ? "(" + threadOfRow() + ") * " + std::to_string(width)
                            : threadOfRow() + " * " + std::to_string(width)) +
                ";");
    printLoads(body, sharedChunks);
    if (sumsInRegisters && !info.blockSums.empty()) {
      CudaText chunk, elements;
      for (const BlockSum &sum : info.blockSums) {
        body.line(vectorType(typeOf(sum.sum)) + " " + nameOf(sum) +
                  (chunksOfRow > 1 ? "[" + std::to_string(chunksOfRow) + "]" : "") + ";");
        elements.line(elementOf(vectorOf(sum)) + " = " +
                      eval(sum.sum.init, AffineMap::get(rank(), 0, context)).expr.text + ";");
      }
      loopOverElements(chunk, elements);
      CudaChunks all = rowChunks;
      all.guard.clear();
      loopOverChunks(body, all, chunk);
    }
    printRowLoop(body, row);
    if (sumsInRegisters && !info.blockSums.empty())
      printBlockSums(body);

    int64_t blocks = llvm::divideCeil(items, rowsAtOnce * rowsInTurn);
    int64_t inTurn = info.blockSums.empty() ? rowsInTurn : info.shape.rowsPerItem;
    std::string note =
        std::string(byWarp ? "A warp" : "A block") + " takes " +
        (inTurn == 1 ? "a row; " : std::to_string(inTurn) + " rows one after the other; ") +
        (kept ? "a thread keeps " : "in every pass a thread reads ") +
        (kept ? std::to_string(chunksOfRow) : std::to_string(chunksAtOnce)) + " x " +
        std::to_string(width) + (kept ? " columns in registers." : " columns at a time.") +
        (held.empty() ? ""
                      : " Shared memory keeps " + std::to_string(chunksHeld) + " of " +
                            std::to_string(chunksOfRow) + " vectors of a thread.");
    return finish(uint32_t(blocks), uint32_t(blockThreads), uint32_t(offset), body, note);
  }

  bool keepsTooEarly() const { return kept && lateLoad; }

private:
  // A maximum m and a sum of exp(term - m), which one pass computes together (online softmax).
  struct Online {
    const Reduction *maximum, *sum;
    Value shifted; // the term of the sum is exp(shifted - maximum)
  };

  // The reductions and results that one pass over the row computes.
  struct RowPass {
    SmallVector<const Reduction *> reductions;
    SmallVector<const BlockSum *> sums;
    SmallVector<unsigned> outputs;
    const Online *online = nullptr;
    // Results with one element per row. A pair has the index of the output and a C++ expression.
    SmallVector<std::pair<unsigned, std::string>> stores;

    bool walks() const { return !reductions.empty() || !sums.empty() || !outputs.empty(); }
    bool writes() const { return !outputs.empty() || !stores.empty(); }
  };

  // A vector of the row that the first pass puts into shared memory.
  struct Held {
    Key key; // the key of vectorOfRow
    unsigned input;
    std::string name; // name of the C++ pointer to the kept elements in shared memory: "held0"
  };

  void findMapping() {
    columns = info.shape.inner;
    rows = llvm::product_of(ArrayRef<int64_t>(info.shape.domain).take_front(info.outerDims()));
    vectors = columns / width;
    byWarp = vectors <= kWarp * chunksFor(width);
    if (!byWarp)
      rowThreads =
          std::min<int64_t>(rows == 1 ? kMaxThreadsAlone : kMaxThreads,
                            llvm::alignTo(llvm::divideCeil(vectors, chunksFor(width)), kWarp));
    chunksOfRow = llvm::divideCeil(vectors, rowThreads);

    int64_t sums = 0;
    for (const BlockSum &b : info.blockSums)
      sums += typeOf(b.sum).getIntOrFloatBitWidth() / 8 * width * chunksOfRow / 4;
    int64_t own = bytesOfRow(false) * chunksOfRow / 4, all = bytesOfRow(true) * chunksOfRow / 4;
    int64_t registers = registersFor(rowThreads);
    bool fewInFlight = bytesOfRow(true) * chunksOfRow <= kRowBytesInFlight;
    kept = mayKeep && own + sums <= registers && (!hasOnePass() || fewInFlight || sums > 0);
    onlines = kept ? SmallVector<Online>() : onlineSums();
    isLong = own > registers && rows > 1 && info.blockSums.empty() && !hasOnePass(onlines) &&
             how.longRows != LongRows::Again && how.sharedBytesPerBlock >= kLeastShared;
    if (isLong) {
      rowThreads = kMaxThreadsAlone;
      chunksOfRow = llvm::divideCeil(vectors, rowThreads);
    }
    sumsInRegisters = kept;
    bool severalRows = rows > 1 && (info.shape.rowsPerItem > 1 || all > own);
    hoists = kept && severalRows && all > own && all + sums <= registers;

    items = rows / info.shape.rowsPerItem;
    rowsAtOnce = byWarp ? std::min<int64_t>(kWarpsPerBlock, items) : 1;
    blockThreads = rowThreads * rowsAtOnce;
    bool readsScalars = llvm::any_of(info.accesses, [](const Access &access) {
      return access.point.getNumDims() > 1 && access.point.isConstant();
    });
    // At most 2 rows if registers keep the rows and the rows share only scalars: NVIDIA's compiler
    // may unroll a longer loop over rows, and then spills registers.
    if ((hoists || readsScalars) && info.blockSums.empty())
      for (int64_t turn : {8, 4, 2})
        if (rowsInTurn == 1 && (hoists || !kept || turn == 2) &&
            rows / (rowsAtOnce * turn) >= kEnoughBlocks)
          rowsInTurn = turn;
    hoists &= loopsOverRows();
    chunksAtOnce = chunksOfRow;
    if (!kept) {
      int64_t bytes = bytesOfRow(true);
      int64_t fit = bytes ? llvm::bit_floor(uint64_t(kRowBytesInFlight / bytes)) : 1;
      chunksAtOnce =
          std::min(std::clamp<int64_t>(fit, 1, rowThreads > 512 ? kMaxStreamed / 2 : kMaxStreamed),
                   chunksOfRow);
    }
    findHeld();
  }

  // Decides how much of a long row shared memory keeps.
  void findHeld() {
    if (!isLong)
      return;
    // The driver adds 1 KiB to a block's shared memory, so an SM has no room for two such blocks.
    if (how.longRows == LongRows::Alone)
      leastShared = int64_t(how.sharedBytesPerSm / 2);
    int64_t bytes = bytesOfRow(false) * rowThreads, totals = 0;
    for (const Reduction &r : info.reductions)
      totals += totalsBytes(r);
    if (how.longRows != LongRows::Shared || bytes == 0)
      return;
    chunksHeld =
        std::min((int64_t(how.sharedBytesPerBlock) - int64_t(llvm::alignTo(totals, 128))) / bytes,
                 chunksOfRow);
  }

  std::string vectorOfRow(Key key, unsigned input, const std::string &name,
                          const std::string &from) override {
    std::string text = CudaEmitter::vectorOfRow(key, input, name, from);
    if (chunksHeld == 0 || !key.first)
      return text;
    // The C++ condition: shared memory keeps the vector at column c. Empty if it keeps all vectors.
    std::string isHeld =
        chunksHeld == chunksOfRow ? "" : "c < " + std::to_string(chunksHeld * rowThreads * width);
    for (const Held &known : held)
      if (known.key == key) {
        std::string get = "kept<" + std::to_string(width) + ">(" + known.name + " + c)";
        return isHeld.empty() ? get : isHeld + " ? " + get + " : " + text;
      }
    held.push_back({key, input, "held" + std::to_string(held.size())});
    if (!isHeld.empty())
      holds.push_back("if (" + isHeld + ")");
    std::string keep = "keep(" + held.back().name + " + c, " + name + ");";
    holds.push_back(isHeld.empty() ? keep : "  " + keep);
    return text;
  }

  // Returns the bytes of shared memory for the totals of a block's warps.
  int64_t totalsBytes(const Reduction &r) const {
    int64_t bytes =
        (loopsOverRows() ? 2 : 1) * rowThreads / kWarp * typeOf(r).getIntOrFloatBitWidth() / 8;
    return int64_t(llvm::alignTo(bytes, 8));
  }

  bool hasOnePass() { return hasOnePass({}); }

  // Returns true if one pass over the row can compute everything apart from the sums in `onlines`.
  bool hasOnePass(ArrayRef<Online> onlines) {
    SmallVector<unsigned> passes;
    for (const Reduction &r : info.reductions)
      if (llvm::none_of(onlines, [&](const Online &o) { return o.sum == &r; }))
        passes.push_back(r.pass);
    for (const BlockSum &b : info.blockSums)
      passes.push_back(b.sum.pass);
    for (const Output &output : info.outputs)
      if (info.coversDomain(output))
        passes.push_back(output.pass);
    llvm::sort(passes);
    return passes.empty() || passes.front() == passes.back();
  }

  // Returns each pair of a maximum m of u and a sum of exp(u - m), which one pass can compute.
  SmallVector<Online> onlineSums() {
    SmallVector<Online> found;
    for (const Reduction &sum : info.reductions) {
      auto exp = sum.term.getDefiningOp<math::ExpOp>();
      auto difference = exp ? exp.getOperand().getDefiningOp<arith::SubFOp>() : arith::SubFOp();
      if (!difference || !isa<arith::AddFOp>(sum.combiner) || !typeOf(sum).isF32())
        continue;
      for (const Reduction &maximum : info.reductions)
        if (isa<arith::MaximumFOp>(maximum.combiner) && maximum.pass + 1 == sum.pass &&
            sameValue(difference.getRhs(), info.identity, maximum.result, maximum.point) &&
            sameValue(difference.getLhs(), info.identity, maximum.term, info.identity) &&
            llvm::none_of(found, [&](const Online &o) { return o.maximum->pass == maximum.pass; }))
          found.push_back({&maximum, &sum, difference.getLhs()});
    }
    return found;
  }

  RowPass collect(unsigned number) {
    RowPass pass;
    for (const Online &candidate : onlines)
      if (candidate.maximum->pass == number)
        pass.online = &candidate;
    for (const Reduction &r : info.reductions)
      if (r.pass == number && llvm::none_of(onlines, [&](auto &o) { return o.sum == &r; }))
        pass.reductions.push_back(&r);
    for (const BlockSum &b : info.blockSums)
      if (b.sum.pass == number)
        pass.sums.push_back(&b);
    for (auto [i, output] : llvm::enumerate(info.outputs)) {
      if (output.pass != number || info.isBlockSum(output))
        continue;
      if (info.coversDomain(output))
        pass.outputs.push_back(i);
      else
        pass.stores.push_back({unsigned(i), eval(output.value, output.point).expr.text});
    }
    return pass;
  }

  // Returns the bytes loaded per vector of a row. `alsoShared` adds tensors that all rows share.
  int64_t bytesOfRow(bool alsoShared) {
    llvm::DenseSet<std::pair<unsigned, AffineMap>> places;
    int64_t bytes = 0;
    for (const Access &access : info.accesses) {
      bool outer = info.outerDims() == 0 || llvm::is_contained(access.dynamic, true) ||
                   info.isOuter(access.point);
      bool fresh = llvm::is_contained(access.dynamic, true) ||
                   places.insert({access.input, access.point}).second;
      if (isInnermost(access.point) && fresh && (outer || alsoShared))
        bytes += width * typeOf(access.input).getElementTypeBitWidth() / 8;
    }
    return bytes;
  }

  void startRow() {
    outerText = &rowTop;
    lateText = &rowBody;
    unsigned dims = info.outerDims();
    for (unsigned d = 0; d < dims; ++d)
      outerDims.push_back(dims == 1 ? "row" : "i" + std::to_string(d));
    if (dims > 1) {
      int64_t below = 1;
      for (unsigned d = dims; d-- > 0;) {
        std::string text = below == 1 ? "row" : "row / " + std::to_string(below);
        if (d > 0)
          text += " % " + std::to_string(info.shape.domain[d]);
        rowTop.line("const u32 " + Twine(outerDims[d]) + " = " + text + ";");
        below *= info.shape.domain[d];
      }
    }
    if (!kept)
      return;
    std::string times = width == 1 ? "" : " * " + std::to_string(width);
    rowChunks.count = unsigned(chunksOfRow);
    if (vectors % rowThreads)
      rowChunks.guard = "c < " + std::to_string(columns);
    if (chunksOfRow > 1)
      rowChunks.index.add("u32", "c",
                          "(k * " + Twine(rowThreads) + " + " + threadOfRow() + ")" + times);
    sharedChunks = rowChunks;
    if (hoists)
      hoisted = &sharedChunks;
    startLoads(rowChunks);
  }

  void printRow(CudaText &to) {
    unsigned passes = info.shape.passes;
    for (const Output &output : info.outputs)
      passes = std::max(passes, output.pass + 1);
    for (unsigned pass = 0; pass < passes; ++pass)
      printPass(pass);
    to.append(rowTop);
    printLoads(to, rowChunks);
    to.append(rowBody);
  }

  void printPass(unsigned number) {
    RowPass pass = collect(number);
    if (pass.walks())
      printWalk(pass);
    else if (guardStores && pass.writes())
      rowBody.line(barrier());
    printPassTotals(pass);
    for (auto &[output, value] : pass.stores) {
      unsigned argument = argumentOf(info.outputs[output]);
      rowBody.line("if (" + threadOfRow() + " == 0)");
      rowBody.line("  storeOne(" + address(argument, typeOf(argument), info.outputs[output].place) +
                   ", " + value + ");");
    }
  }

  void printWalk(const RowPass &pass) {
    for (const Reduction *r : pass.reductions)
      rowBody.line(cudaType(typeOf(*r)) + " " + nameOf(*r) + " = " + identityOf(*r) + ";");
    if (pass.online)
      rowBody.line("float " + nameOf(*pass.online->sum) + " = 0.0f;");
    if (!kept)
      return walkStreamed(pass);
    CudaText chunk = chunkOf(pass);
    if (guardStores && pass.writes())
      rowBody.line(barrier());
    loopOverChunks(rowBody, rowChunks, chunk);
  }

  // Returns the code that processes one loaded vector.
  CudaText chunkOf(const RowPass &pass) {
    startInner();
    CudaText elements, head, tail, chunk;
    innerText = &elements;
    for (const Reduction *r : pass.reductions)
      elements.line(nameOf(*r) + " = " + combine(*r, nameOf(*r), info.identity).text + ";");
    for (const BlockSum *sum : pass.sums)
      addBlockSum(*sum, elements, head, tail);
    chunk.append(head);
    storeOutputs(chunk, elements, pass.outputs);
    chunk.append(tail);
    return chunk;
  }

  // Prints a pass that loads and processes a few vectors at a time.
  void walkStreamed(const RowPass &pass) {
    int64_t step = rowThreads * chunksAtOnce, end = llvm::alignTo(vectors, step);
    bool loops = chunksAtOnce < chunksOfRow;
    // A pass without sums goes backwards, because the end of the row was read last and is still in
    // the L2 cache. A pass with sums goes forwards, to keep the order of its terms.
    bool fromEnd = loops && walkedBefore && pass.reductions.empty() && pass.sums.empty();
    walkedBefore = true;

    CudaChunks group;
    std::string number = threadOfRow();
    if (chunksAtOnce > 1)
      number = "k * " + std::to_string(rowThreads) + " + " + number;
    if (loops)
      number = (fromEnd ? "end - " + std::to_string(step) : "start") + " + " + number;
    group.count = unsigned(chunksAtOnce);
    group.index.add("u32", "c",
                    width == 1 ? Twine(number) : "(" + Twine(number) + ") * " + Twine(width));
    if (vectors % step)
      group.guard = "c < " + std::to_string(columns);

    startLoads(group);
    CudaText chunk = chunkOf(pass), work, inside, loop;
    chunk.lines.insert(chunk.lines.begin(), holds.begin(), holds.end());
    holds.clear();
    if (guardStores && pass.writes())
      rowBody.line(barrier());
    CudaIndex shared = shareIndex(group);
    if (pass.online)
      printOnlinePass(work, chunk, group, *pass.online);
    else
      loopOverChunks(work, group, chunk);
    printLoads(inside, group);
    inside.append(work);
    shared.print(loop, inside, "");
    loop.append(inside);
    std::string head;
    if (fromEnd)
      head = "for (u32 end = " + std::to_string(end) + "; end > 0; end -= " + std::to_string(step) +
             ")";
    else if (loops)
      head = "for (u32 start = 0; start < " + std::to_string(vectors) +
             "; start += " + std::to_string(step) + ")";
    rowBody.block(head, loop);
  }

  // Prints two loops over the loaded vectors. The first one contains `chunk`, which computes the
  // maximum. Unless the maximum is still -inf, the sum of exponentials is then rescaled to it, and
  // the second loop adds to this sum.
  void printOnlinePass(CudaText &loop, CudaText &chunk, const CudaChunks &group,
                       const Online &online) {
    std::string max = nameOf(*online.maximum), sum = nameOf(*online.sum);
    loop.line("const float before = " + max + ";");
    loopOverChunks(loop, group, chunk);
    startInner();
    CudaText elements, second, grown;
    innerText = &elements;
    std::string value = eval(online.shifted, info.identity).expr.text;
    elements.line(sum + " += expBelow(" + value + " - " + max + ");");
    loopOverElements(second, elements);
    grown.line(sum + " = rescaleSum(" + sum + ", before, " + max + ");");
    loopOverChunks(grown, group, second);
    loop.block("if (" + max + " != " + identityOf(*online.maximum) + ")", grown);
  }

  void printTotals(ArrayRef<const Reduction *> reductions) {
    if (reductions.empty())
      return;
    if (!byWarp) {
      for (const Reduction *r : reductions)
        rowBody.line("putWarpTotal<" + cudaCombiner(r->combiner) + ">(" + totals(*r) + ", " +
                     nameOf(*r) + ");");
      rowBody.line("__syncthreads();");
    }
    for (const Reduction *r : reductions) {
      std::string name = nameOf(*r), op = cudaCombiner(r->combiner).str();
      rowBody.line(byWarp ? name + " = reduceWarp<" + op + ">(" + name + ");"
                          : name + " = blockTotal<" + op + ", " +
                                std::to_string(rowThreads / kWarp) + ">(" + totals(*r) + ");");
      if (std::string total = withInit(*r, name); total != name)
        rowBody.line(name + " = " + total + ";");
    }
  }

  void printPassTotals(const RowPass &pass) {
    std::string max, sum, own;
    if (pass.online) {
      max = nameOf(*pass.online->maximum);
      sum = nameOf(*pass.online->sum);
      own = max + "Own";
      rowBody.line("const float " + own + " = " + max + ";");
    }
    printTotals(pass.reductions);
    for (const Reduction *r : pass.reductions)
      publish(*r, nameOf(*r));
    if (!pass.online)
      return;
    rowBody.line(sum + " = rescaleSum(" + sum + ", " + own + ", " + max + ");");
    printTotals({pass.online->sum});
    rowBody.line(sum + " += " + max + " - " + max + "; // NaN where the maximum is infinite");
    publish(*pass.online->sum, sum);
  }

  void publish(const Reduction &reduction, const std::string &name) {
    CudaValue value;
    value.expr = {name};
    value.outer = value.late = true;
    outerCache[{reduction.result, reduction.point}] = value;
  }

  // Prints the code that adds the terms of one row to the sums over its block of rows.
  void addBlockSum(const BlockSum &sum, CudaText &elements, CudaText &chunkHead,
                   CudaText &chunkTail) {
    std::string vector = sumsInRegisters ? vectorOf(sum) : nameOf(sum);
    if (!sumsInRegisters) {
      // The sum is in memory. The thread stores it at the first row and updates it at later rows.
      unsigned argument = argumentOf(info.outputs[sum.output]);
      RankedTensorType type = typeOf(argument);
      std::string at = address(argument, type, sum.sum.point);
      std::string start = eval(sum.sum.init, AffineMap::get(rank(), 0, context)).expr.text;
      chunkHead.line(vectorType(type.getElementType()) + " " + vector + ";");
      CudaText fill;
      loopOverElements(fill, {{elementOf(vector) + " = " + start + ";"}});
      chunkHead.block("if (row == first)", fill);
      chunkHead.block("else", {{vector + " = load<" + std::to_string(width) + ">(" + at + ");"}});
      chunkTail.line("store<" + Twine(width) + ">(" + at + ", " + vector + ");");
      int64_t bytes = (rows - items) * columns * (typeOf(sum.sum).getIntOrFloatBitWidth() / 8);
      again.read += uint64_t(bytes);
      again.written += uint64_t(bytes);
    }
    elements.line(elementOf(vector) + " = " + combine(sum.sum, elementOf(vector), sum.loops).text +
                  ";");
  }

  void printBlockSums(CudaText &to) {
    CudaText chunk;
    for (const BlockSum &sum : info.blockSums) {
      unsigned argument = argumentOf(info.outputs[sum.output]);
      RankedTensorType type = typeOf(argument);
      int64_t stride = info.strideOf(argument, type, unsigned(type.getRank()) - 2);
      bool wide = type.getNumElements() / type.getShape().back() * stride >> 31;
      chunk.line("store<" + Twine(width) + ">(" + nameOf(argument) + " + " +
                 (wide ? "u64(item)" : "item") + " * " + Twine(stride) + " + c, " + vectorOf(sum) +
                 ");");
    }
    loopOverChunks(to, rowChunks, chunk);
  }

  // Prints the loop over the rows of a block (or of a warp, if each warp computes a row).
  void printRowLoop(CudaText &body, const CudaText &row) {
    std::string item = "blockIdx.x";
    if (rowsAtOnce > 1)
      item = "blockIdx.x * " + std::to_string(rowsAtOnce) + " + threadIdx.x / 32";
    auto leave = [&](StringRef what, int64_t count) {
      if (rowsAtOnce > 1 && count % rowsAtOnce) {
        body.line("if (" + what + " >= " + Twine(count) + ")");
        body.line("  return;");
      }
    };
    if (!info.blockSums.empty()) {
      std::string count = std::to_string(info.shape.rowsPerItem);
      body.line("const u32 item = " + item + ";");
      leave("item", items);
      body.line("const u32 first = item * " + count + ";");
      // Without reductions there is no barrier, so unrolling lets loads of several rows overlap.
      if (info.reductions.empty() && info.outputs.size() == info.blockSums.size())
        body.line("#pragma unroll 4");
      body.block("for (u32 row = first; row < first + " + count + "; ++row)", row);
      return;
    }
    if (rowsInTurn > 1) {
      std::string turn = std::to_string(rowsInTurn);
      body.line("const u32 first = " + (rowsAtOnce > 1 ? "(" + item + ")" : item) + " * " + turn +
                ";");
      std::string last = rows % rowsInTurn == 0 && (rows / rowsInTurn) % rowsAtOnce == 0
                             ? "first + " + turn
                             : "min(first + " + turn + ", " + std::to_string(rows) + "u)";
      body.line("const u32 last = " + last + ";");
      body.block("for (u32 row = first; row < last; ++row)", row);
      return;
    }
    if (info.outerDims() > 0) {
      body.line("const u32 row = " + item + ";");
      leave("row", rows);
    }
    body.append(row);
  }

  std::string nameOf(const Reduction &r) const {
    return (nameOfReduction(r.combiner) + Twine(&r - info.reductions.begin())).str();
  }
  std::string nameOf(const BlockSum &b) const {
    return "rows" + std::to_string(&b - info.blockSums.begin());
  }
  // Returns the name of the vector in registers that holds a sum over a block of rows.
  std::string vectorOf(const BlockSum &b) const {
    return nameOf(b) + (chunksOfRow > 1 ? "[k]" : "");
  }
  using CudaEmitter::nameOf;

  // Returns the address of the warps' totals in shared memory. Even and odd rows have different
  // addresses, because a thread may still read the totals of the previous row.
  std::string totals(const Reduction &r) const {
    std::string text = "totals" + std::to_string(&r - info.reductions.begin());
    return loopsOverRows() ? text + " + row % 2 * " + std::to_string(rowThreads / kWarp) : text;
  }

  bool loopsOverRows() const { return rowsInTurn > 1 || info.shape.rowsPerItem > 1; }
  std::string barrier() const { return byWarp ? "__syncwarp();" : "__syncthreads();"; }
  std::string threadOfRow() const { return byWarp ? "threadIdx.x % 32" : "threadIdx.x"; }

  const CudaPrinting how;
  bool isLong = false; // true if shared memory keeps a part of the row
  bool mayKeep, kept = false, byWarp = false, hoists = false, sumsInRegisters = false;
  bool walkedBefore = false; // true if a pass over this row was already printed
  bool guardStores = false;  // true if a barrier must precede the stores of a row
  int64_t columns = 1, rows = 1, vectors = 1;
  int64_t items = 1; // number of work items; each is one row or a block of rows
  // Threads per row, threads per thread block, and rows that a block computes at the same time.
  int64_t rowThreads = kWarp, blockThreads = kWarp, rowsAtOnce = 1;
  int64_t rowsInTurn = 1; // rows that a block computes one after the other
  int64_t chunksOfRow = 1, chunksAtOnce = 1;
  int64_t chunksHeld = 0;  // number of vectors per thread and input that shared memory keeps
  int64_t leastShared = 0; // bytes that the kernel requests, so that few blocks share an SM
  SmallVector<Held> held;
  std::vector<std::string> holds; // C++ lines that copy this pass's vectors to shared memory
  SmallVector<Online> onlines;
  CudaText rowTop, rowBody;
  CudaChunks rowChunks, sharedChunks; // vectors of a kept row; vectors that all rows share
};

} // namespace

CudaKernel printCudaRows(kern::KernelOp kernel, const RegionInfo &info, const CudaPrinting &how) {
  RowPrinter printer(kernel, info, how, /*mayKeep=*/true);
  CudaKernel result = printer.print();
  // If an index of a load depends on a reduction, the row cannot be kept in registers.
  return printer.keepsTooEarly() ? RowPrinter(kernel, info, how, /*mayKeep=*/false).print() : result;
}

} // namespace lmc::codegen
