// Prints the result of a phase as text for people.
#include "compiler/phases/Phases.h"

#include "compiler/report/Explain.h"
#include "compiler/report/Units.h"
#include "dialects/interfaces/LocationName.h"
#include "dialects/interfaces/TensorBytes.h"
#include "dialects/lm/Lm.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace lmc;
using llvm::formatv;
using nlohmann::json;

void lmc::addNotes(const FusionReport &fusions, json &report) {
  if (report.is_null())
    report = {{"formed", json::array()}, {"refused", json::array()}, {"merged", json::array()}};
  for (const auto &[pair, times] : fusions) {
    const bool isFormed = pair.refusal.empty();
    report[isFormed ? "formed" : "refused"].push_back(
        {{"kind", pair.isSiblings ? "siblings" : "producer"},
         {"function", pair.function},
         {"producer", pair.first},
         {"consumer", pair.second},
         {"bytes", pair.bytes},
         {"seconds", pair.seconds},
         {"times", times},
         {isFormed ? "hero" : "reason", isFormed ? pair.hero : pair.refusal}});
  }
}

// Returns a text that explains a phase to a reader of the dump.
static StringRef introduction(Phase phase) {
  switch (phase) {
  case Phase::Model:
    return "The model as the TOML describes it: ops of the lm dialect on tensors. A layer is one\n"
           "function, which @forward calls once per layer.";
  case Phase::Autodiff:
    return "Training: gradients (`backward` marks ops of the backward pass), gradient\n"
           "accumulation and the optimizer. A step runs @micro_first, then @micro as often as it\n"
           "takes, then @micro_last, then @optimizer (with one micro-step a step: @micro_first and\n"
           "@optimizer). @eval is the forward pass alone, which calls @layer. @layer.forward also\n"
           "returns what @layer.backward reads;\n"
           "@layer.backward.accumulate adds to the gradients of earlier micro-steps. Linear\n"
           "layers with one input are merged (\"q_proj+k_proj+v_proj\"), and variables that the\n"
           "optimizer treats alike lie side by side in one (@flat.N). With several ranks, @unit.N is\n"
           "a rank's piece of a layer's parameters: the others are gathered, gradients are summed.";
  case Phase::Distribute:
    return "What ranks compute apart is joined: norms, losses and new weights. One rank has nothing\n"
           "to join.";
  case Phase::Memory:
    return "What the backward pass computes again instead of keeping it. Each choice for a layer\n"
           "is an option; layers of different options are different functions\n"
           "(@layer.forward.none). The options hull1, keep1 ... are found by the compiler. An op is\n"
           "named by its module: \"mlp\" is the activation alone, \"self_attn\" the attention alone.";
  case Phase::Fusion:
    return "Model ops became matrix products (kern.gemm), attention, and launches of kernels: a\n"
           "kern.kernel holds the scalar code of all the ops that were fused into it. Its hero\n"
           "is the shape of its loops: elementwise, row_reduction, column_reduction, gather.\n"
           "lm.embedding_grad became kern.scatter_add; norms of gradients became sums of squares.";
  case Phase::Schedule:
    return "Layers are inlined: each function is one list of ops, in the order in which they\n"
           "run. Kernels that now stand next to each other are fused across layers.";
  case Phase::Buffers:
    return "Every value has its bytes: a slice of the arena @workspace, or a variable in @state.\n"
           "A command reads and writes slices. All addresses are fixed. A kernel that reads or\n"
           "writes columns of a wider matrix is a variant of its own (@rope_strided). `items` and\n"
           "`chunk` of a launch divide its work among the threads of a CPU; a GPU has a grid.";
  case Phase::Codegen:
  case Phase::Emit: // these phases leave no IR
    break;
  }
  return "";
}

//===-- State and functions -----------------------------------------------------------------===//

static std::string bytesText(uint64_t bytes) { return readableBytes(double(bytes)); }

// Adds the number and the bytes of the variables per kind. Skips variables inside a larger one.
static void addState(ModuleOp module, std::string &text) {
  struct Kind {
    unsigned variables = 0;
    uint64_t bytes = 0;
  };
  llvm::MapVector<StringRef, Kind> kinds;
  for (auto variable : module.getOps<lm::VariableOp>()) {
    if (variable.getStorage())
      continue;
    Kind &kind = kinds[lm::stringifyVariableKind(variable.getKind())];
    ++kind.variables;
    kind.bytes += byteSize(cast<RankedTensorType>(variable.getType()));
  }
  text += "\nstate, by kind:\n";
  for (const auto &[name, kind] : kinds)
    text += formatv("  {0,-14} {1,12}  in {2} variable(s)\n", name, bytesText(kind.bytes),
                    kind.variables);
}

// Returns "17 ops: 5 kern.gemm, 4 kern.launch, ..." with the most frequent op first.
static std::string opCounts(func::FuncOp function) {
  llvm::MapVector<StringRef, unsigned> counts;
  unsigned ops = 0;
  for (Operation &op : function.getBody().front().without_terminator()) {
    ++ops;
    ++counts[op.getName().getStringRef()];
  }
  SmallVector<std::pair<StringRef, unsigned>> sorted = counts.takeVector();
  llvm::stable_sort(sorted, [](auto &a, auto &b) { return a.second > b.second; });
  std::string text = formatv("{0} ops:", ops);
  for (const auto &[name, count] : sorted)
    text += formatv("{0} {1} {2}", name == sorted.front().first ? "" : ",", count, name);
  return text;
}

static void addFunctions(ModuleOp module, std::string &text) {
  llvm::StringMap<unsigned> calls;
  module.walk([&](func::CallOp call) { ++calls[call.getCallee()]; });
  text += "\nfunctions:\n";
  for (auto function : module.getOps<func::FuncOp>())
    text += formatv("  @{0}{1}\n    {2}\n", function.getSymName(),
                    function.isPrivate()
                        ? formatv(", called {0} time(s)", calls[function.getSymName()]).str()
                        : "",
                    opCounts(function));
}

//===-- Buffers -----------------------------------------------------------------------------===//

static void addArenas(ModuleOp module, std::string &text) {
  text += "\narenas:\n";
  for (auto arena : module.getOps<plan_ir::ArenaOp>())
    text += formatv("  @{0,-10} {1,14} bytes ({2}); lower bound {3}\n",
                    arena.getSymName(), arena.getBytes(), bytesText(arena.getBytes()),
                    arena.getLowerBound());
}

static void addVariables(ModuleOp module, std::string &text) {
  SmallVector<plan_ir::VariableOp> variables(module.getOps<plan_ir::VariableOp>());
  llvm::stable_sort(variables, [](auto a, auto b) { return a.getOffset() < b.getOffset(); });
  text += "\nvariables, by address (some lie inside of others: @flat.N, merged weights):\n"
          "  arena          offset        bytes  kind            name\n";
  for (plan_ir::VariableOp variable : variables)
    text += formatv("  @{0,-10} {1,9} {2,12}  {3,-14}  {4}\n", variable.getArena(),
                    variable.getOffset(), byteSize(cast<RankedTensorType>(variable.getType())),
                    variable.getKind(), variable.getSymName());
}

// Returns the name of a command for people, such as "launch @rms_norm".
static std::string commandText(Operation &command) {
  std::string text = command.getName().stripDialect().str();
  if (auto launch = dyn_cast<plan_ir::LaunchOp>(command))
    text += " @" + launch.getKernel().str();
  return text;
}

// Adds a line for a command: its number, its layer, what it runs, and what it writes.
static void addCommand(size_t number, Operation *command, std::string &text) {
  auto step = cast<StepOpInterface>(command);
  std::string layer = step.getLayerIndex() < 0 ? "-" : std::to_string(step.getLayerIndex());
  text += formatv("  {0,7} {1,6}  {2}  {3,-34} {4}", number, layer,
                  step.getBackward() ? "backward" : "forward ", commandText(*command),
                  nameOf(command->getLoc()));
  const CommandOperands operands = cast<CommandOpInterface>(command).getCommandOperands();
  for (const CommandOperand &operand : operands) {
    if (operand.role != CommandRole::Write && operand.role != CommandRole::Accumulate)
      continue;
    text += operand.role == CommandRole::Accumulate ? ", adds to " : ", writes ";
    if (auto slice = operand.value.getDefiningOp<plan_ir::SliceOp>())
      text += formatv("{0}", slice.getOffset());
    else if (auto variable = operand.value.getDefiningOp<plan_ir::VariableRefOp>())
      text += formatv("@{0}", variable.getVariable());
    if (llvm::any_of(operands, [&](const CommandOperand &other) {
          return other.role == CommandRole::Read && other.value == operand.value;
        }))
      text += " in place";
  }
  text += "\n";
}

// Lists a function's slices in the order of their first writes, and then its commands.
static void addSlices(plan_ir::FunctionOp function, std::string &text) {
  SmallVector<Operation *> commands;
  SmallVector<plan_ir::SliceOp> slices;
  for (Operation &op : function.getBody().front()) {
    if (auto slice = dyn_cast<plan_ir::SliceOp>(op))
      slices.push_back(slice);
    else if (!isa<plan_ir::VariableRefOp>(op))
      commands.push_back(&op);
  }
  llvm::stable_sort(slices, [](auto a, auto b) { return a.getFirst() < b.getFirst(); });
  text += formatv("\nfunction @{0}: {1} commands, at most {2} of @workspace\n"
                  "  live             offset        bytes  category           first value\n",
                  function.getSymName(), commands.size(), bytesText(function.getPeakBytes()));
  for (plan_ir::SliceOp slice : slices) {
    auto type = cast<plan_ir::SliceType>(slice.getType()).getContent();
    std::string live = formatv("{0}-{1}", slice.getFirst(), slice.getLast());
    text +=
        formatv("  {0,-10} {1,12} {2,12}  {3,-18} {4} {5}", live, slice.getOffset(), byteSize(type),
                stringifyCategory(slice.getCategory()), slice.getSource(), type);
    if (slice.getPitch())
      text += formatv(", {0} rows {1} bytes apart", slice.getRows(), slice.getPitch());
    text += "\n";
  }
  text += "  command  layer  pass      op                                 of, and what it writes\n";
  for (auto [number, command] : llvm::enumerate(commands))
    addCommand(number, command, text);
}

static std::string buffersText(ModuleOp module) {
  std::string text;
  addArenas(module, text);
  addVariables(module, text);
  text +=
      "\nFor each function, its buffers in @workspace and their views, then its commands.\n"
      "A buffer holds its bytes from the first to the last of the commands given as `live`, which\n"
      "are numbered from 0; before and after, the bytes are another buffer's. It is named after the\n"
      "first value in it. A kernel that works in place puts another value there. Lines with the\n"
      "same offset at the same time are views of one buffer. The gradient of a value has the name\n"
      "of the value. All results of a fused kernel have the name of its last op: the sum that\n"
      "\"post_attention_layernorm\" normalises has this name too.\n";
  for (auto function : module.getOps<plan_ir::FunctionOp>())
    addSlices(function, text);
  return text;
}

std::string lmc::phaseTable(Phase phase, ModuleOp module, const json &reports,
                            const FusionReport &fusions) {
  std::string text =
      formatv("Phase {0}, {1}.\n\n{2}\n", int(phase) + 1, phaseName(phase), introduction(phase));
  if (phase == Phase::Buffers)
    return text + buffersText(module);
  addState(module, text);
  addFunctions(module, text);
  if (phase == Phase::Memory && reports.contains("recompute")) {
    json recompute = reports["recompute"];
    if (auto mode = module->getAttrOfType<StringAttr>("lm.recompute"))
      recompute.emplace("mode", mode.str());
    text += recomputeText(recompute);
  }
  if (phase == Phase::Fusion || phase == Phase::Schedule) {
    json notes;
    addNotes(fusions, notes);
    text += "\nfusions\n" + fusionsText(notes);
  }
  return text;
}
