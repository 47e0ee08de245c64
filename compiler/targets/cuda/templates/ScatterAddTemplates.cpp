#include "compiler/targets/cuda/templates/ScatterAddTemplates.h"

#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

using namespace lmc;
using namespace lmc::codegen;
using llvm::formatv;

namespace {

constexpr int64_t kWarps = 8;    // warps per thread block, as in scatter_add.cuh
constexpr int64_t kZeroRows = 8; // equals RowSums::kZeroRows in scatter_add.cuh

// Returns the width in elements of the widest vector (at most 16 bytes) that divides a row.
int64_t vectorWidth(int64_t columns, int64_t elementBytes) {
  int64_t width = 16 / elementBytes;
  while (columns % width)
    width /= 2;
  return width;
}

class Printer {
public:
  explicit Printer(const ScatterAddShape &shape) : shape(shape), layout(shape.layout()) {}

  std::vector<ScatterAddLaunch> print() {
    for (int64_t pass = 0; pass < layout.passes; ++pass)
      addPass(pass);
    addSums();
    return std::move(launches);
  }

private:
  using Operand = ScatterAddOperand;

  void addPass(int64_t pass) {
    bool first = pass == 0;
    int64_t shift = pass * layout.digitBits, digits = int64_t(1) << layout.digitBits;
    int64_t to = pass % 2, from = 1 - to, counters = kWarps * digits * 4;
    std::string sort = formatv("lmc::TokenSort<{0}, {1}, {2}, {3}>", shape.rows, shape.vocabulary,
                               layout.tile, layout.digitBits);
    std::string base = formatv("token_sort_{0}_{1}", shape.rows, shape.vocabulary);
    std::string keys = first ? "ids" : words(layout.keys[from]);
    std::string what = formatv(
        "of the ids of {0} tokens, vocabulary {1}, pass {2} of {3}: bits {4} to "
        "{5} of the key.",
        shape.rows, shape.vocabulary, pass + 1, layout.passes, shift, shift + layout.digitBits - 1);
    std::vector<Operand> args{Operand::Workspace};
    if (first)
      args.insert(args.begin(), Operand::Ids);
    uint64_t array = uint64_t(shape.rows) * 4, counts = uint64_t(layout.tiles * digits) * 4;

    add(formatv("{0}_count{1}", base, pass),
        formatv(
            "Stable sort {0}\n// counts[tile, digit] = how many keys of a tile of {1} positions "
            "have the digit: u32 [{2}, {3}].",
            what, layout.tile, layout.tiles, digits),
        formatv("  {0}::count<{1}>({2}, {3});\n", sort, shift, keys, words(layout.counts)),
        layout.tiles, counters, {array, counts}, args, first);
    add(formatv("{0}_move{1}", base, pass),
        formatv(
            "Stable sort {0}\n// Each (key, token) goes behind those of smaller digits, and those "
            "of its digit before it.",
            what),
        formatv("  {0}::move<{1}>({2}, {3}, {4},\n      {5},\n      {6});\n", sort, shift, keys,
                first ? "nullptr" : words(layout.tokens[from]), words(layout.counts),
                words(layout.keys[to]), words(layout.tokens[to])),
        layout.tiles, counters + kWarps * 4, {(first ? 1 : 2) * array + counts, 2 * array}, args,
        first);
  }

  void addSums() {
    const char *type = cudaName(shape.x);
    const char *sumName = shortName(shape.sumType()), *xName = shortName(shape.x);
    int64_t sorted = (layout.passes - 1) % 2;
    std::string rows = formatv("lmc::RowSums<{0}, {1}, {2}, {3}, {4}, {5}>", type, shape.rows,
                               shape.columns, shape.vocabulary, layout.range, shape.accumulate);
    std::string what =
        formatv("d[ids[t], :] {0} x[t, :], t ascending; x {1} [{2}, {3}], d {4} [{5}, {3}]",
                shape.accumulate ? "+=" : "= sum of", xName, shape.rows, shape.columns, sumName,
                shape.vocabulary);
    std::string name = formatv("scatter_add_{0}x{1}_{2}_{3}{4}", shape.rows, shape.columns,
                               shape.vocabulary, xName, shape.accumulate ? "_acc" : "");
    std::string keys = words(layout.keys[sorted]), tokens = words(layout.tokens[sorted]);
    std::string partials = sums(layout.partials);
    int64_t sumBytes = elementBytes(shape.sumType()), xBytes = elementBytes(shape.x);
    int64_t stretches = llvm::divideCeil(shape.columns, 32 * vectorWidth(shape.columns, xBytes));
    int64_t sumStretches =
        llvm::divideCeil(shape.columns, 32 * vectorWidth(shape.columns, sumBytes));
    uint64_t ids = uint64_t(std::min(shape.rows, shape.vocabulary)),
             pairs = uint64_t(shape.rows) * 8;
    uint64_t xRow = uint64_t(shape.columns * xBytes), dRow = uint64_t(shape.columns * sumBytes);

    add(name + "_ranges",
        formatv(
            "{0}.\n// Over sorted tokens, {1} at a time: sums of their runs of equal ids. The end "
            "of a run that began before\n// goes to partials [{2}, {3}].",
            what, layout.range, layout.ranges, shape.columns),
        formatv("  {0}::addRanges(x, {1}, {2},\n      {3}, d);\n", rows, keys, tokens, partials),
        blocksOf(layout.ranges * stretches), 0,
        {pairs + uint64_t(shape.rows) * xRow + (shape.accumulate ? ids * dRow : 0), ids * dRow},
        {Operand::X, Operand::Workspace, Operand::D}, 1);
    if (layout.ranges > 1)
      add(name + "_partials",
          formatv("{0}.\n// To the rows of runs that lie in several ranges of {1} tokens: their "
                  "partial sums, in order.",
                  what, layout.range),
          formatv("  {0}::addPartials({1}, {2}, d);\n", rows, keys, partials),
          blocksOf((layout.ranges - 1) * sumStretches), 0, {uint64_t(layout.ranges - 1) * 8, 0},
          {Operand::Workspace, Operand::D}, 0);
    if (!shape.accumulate)
      add(name + "_zeros", formatv("{0}.\n// Zeros to the rows of d whose id no token has.", what),
          formatv("  {0}::zeroOthers({1}, d);\n", rows, keys),
          blocksOf(llvm::divideCeil(shape.vocabulary, kZeroRows)), 0,
          {pairs / 2, (uint64_t(shape.vocabulary) - ids) * dRow}, {Operand::Workspace, Operand::D},
          0);
  }

  void add(std::string name, std::string comment, std::string body, int64_t blocks,
           int64_t sharedBytes, GlobalBytes bytes, std::vector<Operand> args, uint32_t inputs) {
    // Indexed by ScatterAddOperand.
    const std::string declarations[] = {
        "const lmc::i32 *ids", formatv("const {0} *x", cudaName(shape.x)), "lmc::u8 *workspace",
        formatv("{0} *d", cudaName(shape.sumType()))};
    auto parameters = llvm::map_range(args, [&](Operand arg) { return declarations[size_t(arg)]; });
    CudaKernel kernel;
    kernel.name = name;
    kernel.hero = "scatter_add";
    // The second launch bound, 1 block per SM, lets ptxas give all registers to one block.
    kernel.source = formatv("// {0}\n#include \"lmc/scatter_add.cuh\"\n\n"
                            "extern \"C\" __global__ void __launch_bounds__({1}, 1) {2}({3}) {{\n"
                            "{4}}\n",
                            comment, layout.threads, name, llvm::join(parameters, ", "), body);
    kernel.grid = {uint32_t(blocks), 1, 1};
    kernel.threads = uint32_t(layout.threads);
    kernel.sharedBytes = uint32_t(sharedBytes);
    kernel.bytes = bytes;
    launches.push_back({std::move(kernel), std::move(args), inputs});
  }

  std::string at(int64_t offset, const char *type) const {
    return formatv("reinterpret_cast<{0} *>(workspace + {1})", type, offset);
  }
  std::string words(int64_t offset) const { return at(offset, "lmc::u32"); }
  std::string sums(int64_t offset) const { return at(offset, cudaName(shape.sumType())); }
  // Returns the minimum number of thread blocks that together have `warps` warps.
  static int64_t blocksOf(int64_t warps) { return llvm::divideCeil(warps, kWarps); }

  const ScatterAddShape &shape;
  const ScatterAddLayout layout;
  std::vector<ScatterAddLaunch> launches;
};

} // namespace

std::vector<ScatterAddLaunch> lmc::codegen::scatterAddKernels(const ScatterAddShape &shape) {
  return Printer(shape).print();
}

template <typename Op> static ScatterAddShape shapeOf(Op op) {
  mlir::RankedTensorType x = contentOf(op.getX());
  return {x.getDimSize(0), x.getDimSize(1), contentOf(op.getD()).getDimSize(0),
          *dataTypeOf(x.getElementType())};
}

std::vector<TemplateLaunch> lmc::codegen::templatesOf(plan_ir::ScatterAddOp op, const CudaArch &) {
  ScatterAddShape shape = shapeOf(op);
  shape.accumulate = op.getAccumulate();
  // Indexed by ScatterAddOperand.
  const mlir::Value slices[] = {op.getIds(), op.getX(), op.getWorkspace(), op.getD()};
  std::vector<TemplateLaunch> launches;
  for (ScatterAddLaunch &launch : scatterAddKernels(shape)) {
    TemplateLaunch &made = launches.emplace_back(TemplateLaunch{std::move(launch.kernel), {}, {}});
    for (auto [i, operand] : llvm::enumerate(launch.args))
      (i < launch.inputs ? made.inputs : made.results).push_back(slices[size_t(operand)]);
  }
  return launches;
}

mlir::RankedTensorType lmc::codegen::scratchOf(kern::ScatterAddOp op) {
  return bytesType(op, shapeOf(op).layout().bytes);
}
