// Random faults in the plans of small models: CheckAliasing against an interpreter that runs
// both forms (see TokenInterpreter.h). A fault that changes what a function leaves in memory
// must be found. One that only makes a command compute what nobody asks for, where nobody reads
// it, may be. What is refused although all is as it was is counted by reason.
#include "passes/buffers/CheckAliasing.h"
#include "dialects/kern/Kern.h"
#include "test/Draws.h"
#include "test/passes/buffers/PlacedModel.h"
#include "test/passes/buffers/TokenInterpreter.h"

#include "llvm/Support/MemoryBuffer.h"

#include <iostream>
#include <map>
#include <random>

using namespace mlir;
using namespace lmc;

namespace {

using Random = std::mt19937_64;

// What a mutation did, or "" when the function has nothing of its kind.
using Mutation = std::string (*)(plan_ir::FunctionOp, Random &);

template <typename Op> std::vector<Op> opsOf(plan_ir::FunctionOp function) {
  auto range = function.getOps<Op>();
  return {range.begin(), range.end()};
}

std::vector<Operation *> commandsOf(plan_ir::FunctionOp function) {
  std::vector<Operation *> commands;
  for (Operation &op : function.getBody().front())
    if (!isa<plan_ir::SliceOp, plan_ir::VariableRefOp>(op))
      commands.push_back(&op);
  return commands;
}

template <typename T> T pick(const std::vector<T> &from, Random &random) {
  return from.empty() ? T() : from[random() % from.size()];
}

std::string shiftSlice(plan_ir::FunctionOp function, Random &random) {
  plan_ir::SliceOp slice = pick(opsOf<plan_ir::SliceOp>(function), random);
  if (!slice)
    return "";
  int64_t unit = random() % 4 ? 64 : 4, steps = 1 + int64_t(random() % 16);
  slice.setOffset(uint64_t(int64_t(slice.getOffset()) + (random() % 2 ? unit : -unit) * steps));
  return "shift a slice";
}

std::string moveSlice(plan_ir::FunctionOp function, Random &random) {
  plan_ir::SliceOp slice = pick(opsOf<plan_ir::SliceOp>(function), random);
  plan_ir::SliceOp other = pick(opsOf<plan_ir::SliceOp>(function), random);
  if (!slice || slice.getOffset() == other.getOffset())
    return "";
  slice.setOffset(other.getOffset());
  return "move a slice onto another";
}

std::string swapSlices(plan_ir::FunctionOp function, Random &random) {
  plan_ir::SliceOp slice = pick(opsOf<plan_ir::SliceOp>(function), random);
  plan_ir::SliceOp other = pick(opsOf<plan_ir::SliceOp>(function), random);
  if (!slice || slice.getOffset() == other.getOffset())
    return "";
  uint64_t offset = slice.getOffset();
  slice.setOffset(other.getOffset());
  other.setOffset(offset);
  return "swap the places of two slices";
}

std::string changeOperand(plan_ir::FunctionOp function, Random &random) {
  Operation *command = pick(commandsOf(function), random);
  if (!command)
    return "";
  OpOperand &operand = command->getOpOperand(unsigned(random() % command->getNumOperands()));
  std::vector<Value> others;
  for (Operation &op : function.getBody().front())
    for (Value value : op.getResults())
      if (value != operand.get() && value.getType() == operand.get().getType())
        others.push_back(value);
  if (others.empty())
    return "";
  operand.set(pick(others, random));
  return "give a command another slice";
}

// A result goes where an operand of the same command is.
std::string writeOverInput(plan_ir::FunctionOp function, Random &random) {
  Operation *command = nullptr;
  Value x, y;
  for (int tries = 0; !x || x == y || x.getType() != y.getType(); ++tries) {
    command = pick(commandsOf(function), random);
    if (!command || tries == 100)
      return "";
    x = command->getOperand(unsigned(random() % command->getNumOperands()));
    y = command->getOperand(unsigned(random() % command->getNumOperands()));
  }
  for (OpOperand &use : llvm::make_early_inc_range(y.getUses()))
    if (use.getOwner() == command || command->isBeforeInBlock(use.getOwner()))
      use.set(x);
  return "make a result over an operand";
}

std::string dropCommand(plan_ir::FunctionOp function, Random &random) {
  Operation *command = pick(commandsOf(function), random);
  if (!command)
    return "";
  command->erase();
  return "drop a command";
}

std::string dropCopy(plan_ir::FunctionOp function, Random &random) {
  plan_ir::CopyOp copy = pick(opsOf<plan_ir::CopyOp>(function), random);
  if (!copy)
    return "";
  copy.erase();
  return "drop a copy";
}

constexpr const char *kRepeated = "run a command again";

std::string repeatCommand(plan_ir::FunctionOp function, Random &random) {
  Operation *command = pick(commandsOf(function), random);
  if (!command)
    return "";
  OpBuilder b(command);
  b.setInsertionPointAfter(pick(commandsOf(function), random));
  b.clone(*command);
  return kRepeated;
}

std::string moveCommand(plan_ir::FunctionOp function, Random &random) {
  std::vector<Operation *> commands = commandsOf(function);
  if (commands.size() < 2)
    return "";
  size_t from = random() % commands.size();
  size_t to = std::min(commands.size() - 1, from + 1 + random() % 3);
  if (from == to)
    return "";
  if (random() % 2)
    commands[from]->moveAfter(commands[to]);
  else
    commands[to]->moveBefore(commands[from]);
  return "move a command";
}

template <typename Op> void changeRuns(Op op, Random &random) {
  auto type = cast<plan_ir::SliceType>(op.getType()).getContent();
  int64_t width = int64_t(type.getElementTypeBitWidth()) / 8;
  if (op.getPitch() == 0 && type.getRank() > 1) {
    int64_t run = type.getNumElements() / type.getDimSize(0) * width;
    op.setRows(type.getDimSize(0));
    op.setPitch(run + int64_t(random() % 4) * width);
  } else if (random() % 2) {
    op.setPitch(op.getPitch() + (random() % 2 ? width : -width) * int64_t(1 + random() % 8));
  } else {
    op.setRows(op.getRows() * 2);
  }
}

std::string changePitch(plan_ir::FunctionOp function, Random &random) {
  Operation *view = pick(opsOf<plan_ir::SliceOp>(function), random);
  if (random() % 4 == 0)
    view = pick(opsOf<plan_ir::VariableRefOp>(function), random);
  if (auto slice = dyn_cast_or_null<plan_ir::SliceOp>(view))
    changeRuns(slice, random);
  else if (view)
    changeRuns(cast<plan_ir::VariableRefOp>(view), random);
  return view ? "change rows or pitch" : "";
}

std::string changeVariable(plan_ir::FunctionOp function, Random &random) {
  plan_ir::VariableRefOp ref = pick(opsOf<plan_ir::VariableRefOp>(function), random);
  std::vector<plan_ir::VariableOp> others;
  for (auto variable : function->getParentOfType<ModuleOp>().getOps<plan_ir::VariableOp>())
    if (ref && variable.getSymName() != ref.getVariable() &&
        variable.getType() == cast<plan_ir::SliceType>(ref.getType()).getContent())
      others.push_back(variable);
  if (others.empty())
    return "";
  ref.setVariable(pick(others, random).getSymName());
  return "refer to another variable";
}

std::string shiftVariable(plan_ir::FunctionOp function, Random &random) {
  plan_ir::VariableRefOp ref = pick(opsOf<plan_ir::VariableRefOp>(function), random);
  if (!ref)
    return "";
  ref.setOffset(uint64_t(int64_t(ref.getOffset()) + (random() % 2 ? 4 : -4)));
  return "shift a variable";
}

std::string toggleAccumulate(plan_ir::FunctionOp function, Random &random) {
  plan_ir::GemmOp gemm = pick(opsOf<plan_ir::GemmOp>(function), random);
  if (plan_ir::ScatterAddOp scatter = pick(opsOf<plan_ir::ScatterAddOp>(function), random);
      scatter && random() % 8 == 0) {
    scatter.setAccumulate(!scatter.getAccumulate());
    return "toggle accumulate";
  }
  if (!gemm)
    return "";
  gemm.setAccumulate(!gemm.getAccumulate());
  return "toggle accumulate";
}

std::string toggleTranspose(plan_ir::FunctionOp function, Random &random) {
  plan_ir::GemmOp gemm = pick(opsOf<plan_ir::GemmOp>(function), random);
  auto square = [](Value slice) {
    auto type = cast<plan_ir::SliceType>(slice.getType()).getContent();
    return type.getDimSize(0) == type.getDimSize(1);
  };
  if (!gemm || !square(gemm.getB()))
    return "";
  gemm.setTransposeB(!gemm.getTransposeB());
  return "toggle a transpose";
}

std::string changeKernel(plan_ir::FunctionOp function, Random &random) {
  plan_ir::LaunchOp launch = pick(opsOf<plan_ir::LaunchOp>(function), random);
  std::vector<kern::KernelOp> same;
  for (auto kernel : function->getParentOfType<ModuleOp>().getOps<kern::KernelOp>()) {
    if (!launch || kernel.getSymName() == launch.getKernel())
      continue;
    std::vector<Type> types;
    for (Type type : kernel.getBody().front().getArgumentTypes())
      types.push_back(type);
    for (Type type : kernel.getBody().front().getTerminator()->getOperandTypes())
      types.push_back(type);
    bool fits = types.size() == launch.getArgs().size();
    for (size_t i = 0; fits && i < types.size(); ++i)
      fits = types[i] == cast<plan_ir::SliceType>(launch.getArgs()[i].getType()).getContent();
    if (fits)
      same.push_back(kernel);
  }
  if (same.empty())
    return "";
  launch.setKernel(pick(same, random).getSymName());
  return "launch another kernel";
}

std::string changeLifetime(plan_ir::FunctionOp function, Random &random) {
  plan_ir::SliceOp slice = pick(opsOf<plan_ir::SliceOp>(function), random);
  if (!slice || slice.getFirst() == slice.getLast())
    return "";
  if (random() % 2)
    slice.setFirst(slice.getFirst() + 1);
  else
    slice.setLast(slice.getLast() - 1);
  return "shorten a lifetime";
}

// All slices live all the time, so that nothing but values and overlaps tells of a fault.
void forgetLifetimes(plan_ir::FunctionOp function) {
  uint64_t commands = commandsOf(function).size();
  for (auto slice : function.getOps<plan_ir::SliceOp>()) {
    slice.setFirst(0);
    slice.setLast(commands);
  }
}

constexpr Mutation kMutations[] = {
    shiftSlice,  moveSlice,   swapSlices,     changeOperand, writeOverInput,
    dropCommand, dropCopy,    repeatCommand,  moveCommand,   changePitch,
    changeVariable, shiftVariable, toggleAccumulate, toggleTranspose, changeKernel,
    changeLifetime};

// Why a plan was refused: rules that hold whatever the values, or a wrong value.
std::string reasonOf(const std::string &message) {
  for (const char *rule :
       {"lives from command", "with another buffer", "aligned", "takes bytes", "runs", "for dense",
        "scratch memory", "two results to the same bytes", "may still have to read",
        "copies", "asks for"})
    if (message.find(rule) != std::string::npos)
      return rule;
  return "a wrong value";
}

struct Tally {
  int tried = 0, found = 0, missed = 0, unasked = 0, harmless = 0;
  std::map<std::string, int> refused; // although harmless, by reason
};

class DrawnAliasingFaults : public testing::Test {
protected:
  // The first diagnostic of the check, or "".
  std::string check(plan_ir::FunctionOp planned) {
    std::string message;
    ScopedDiagnosticHandler handler(&model.context, [&](Diagnostic &diagnostic) {
      if (message.empty())
        message = diagnostic.str();
      return success();
    });
    LogicalResult result = checkAliasing(model.functionOf(planned), planned);
    EXPECT_EQ(failed(result), !message.empty()) << "an error without a message, or the reverse";
    return message;
  }

  enum class Effect { None, Unasked, Harm };

  Effect effectOf(plan_ir::FunctionOp planned, const FunctionOutcome &expected) {
    int unasked = 0;
    for (uint64_t seed : {1, 2, 3}) {
      PlanOutcome outcome = runPlan(planned, expected, seed);
      if (outcome.outside || outcome.state != expected.state)
        return Effect::Harm;
      unasked += outcome.unasked;
    }
    return unasked ? Effect::Unasked : Effect::None;
  }

  // Tries `count` mutants of each function of the model.
  void fuzz(int64_t count, uint64_t seed) {
    Random random(seed);
    std::vector<plan_ir::FunctionOp> plans;
    for (auto planned : model.plan->getOps<plan_ir::FunctionOp>())
      plans.push_back(planned);
    for (plan_ir::FunctionOp planned : plans) {
      FunctionOutcome expected = runFunction(model.functionOf(planned), *model.plan);
      ASSERT_EQ(effectOf(planned, expected), Effect::None) << planned.getSymName().str();
      ASSERT_EQ(check(planned), "");
      for (int64_t i = 0; i < count; ++i)
        attack(planned, expected, random);
    }
  }

  // Tries `count` mutants of each module of a lit test of place-buffers, with seeds from `seed` + 1.
  // Returns the number of modules.
  int fuzzFile(const std::string &name, int64_t count, int seed) {
    std::string path = LMC_SOURCE_DIR "/test/passes/buffers/" + name + ".mlir";
    auto file = llvm::MemoryBuffer::getFile(path);
    EXPECT_TRUE(bool(file)) << path;
    SmallVector<StringRef> texts;
    if (file)
      (*file)->getBuffer().split(texts, "// -----");
    for (StringRef text : texts) {
      model.parse(text.str().c_str());
      fuzz(count, uint64_t(++seed));
    }
    return int(texts.size());
  }

  void attack(plan_ir::FunctionOp planned, const FunctionOutcome &expected, Random &random) {
    OpBuilder b(planned);
    b.setInsertionPointAfter(planned);
    auto mutant = cast<plan_ir::FunctionOp>(b.clone(*planned));
    Mutation mutation = kMutations[random() % std::size(kMutations)];
    std::string kind = mutation(mutant, random);
    if (!kind.empty()) {
      if (random() % 4 && mutation != changeLifetime)
        forgetLifetimes(mutant);
      Tally &tally = tallies[kind];
      ++tally.tried;
      std::string message = check(mutant);
      Effect effect = effectOf(mutant, expected);
      bool refused = !message.empty();
      tally.found += effect == Effect::Harm && refused;
      tally.missed += effect == Effect::Harm && !refused;
      tally.unasked += effect == Effect::Unasked;
      tally.harmless += effect == Effect::None;
      if (effect == Effect::None && refused)
        ++tally.refused[reasonOf(message)];
      EXPECT_TRUE(effect != Effect::Harm || refused) << "not found: " << kind;
    }
    mutant.erase();
  }

  void report() {
    Tally all;
    for (const auto &[kind, tally] : tallies) {
      print(kind, tally);
      all.tried += tally.tried, all.found += tally.found, all.missed += tally.missed;
      all.unasked += tally.unasked, all.harmless += tally.harmless;
      // A command that runs again may read bytes that have another value by then. The check refuses
      // it although nothing reads its result: no op asks for such a command.
      for (const auto &[reason, count] : tally.refused)
        if (kind != kRepeated)
          all.refused[reason] += count;
    }
    print("all", all);
    EXPECT_GT(all.found, all.tried / 2);
    // The check's own reasoning about values refuses nothing without need.
    EXPECT_EQ(all.refused["a wrong value"], 0);
  }

  static void print(const std::string &kind, const Tally &tally) {
    std::cout << kind << ": " << tally.tried << " tried, " << tally.found << " found, "
              << tally.missed << " missed, " << tally.unasked << " unasked for, "
              << tally.harmless << " harmless";
    for (const auto &[reason, count] : tally.refused)
      std::cout << ", " << count << " refused (" << reason << ")";
    std::cout << "\n";
  }

  PlacedModel model;
  std::map<std::string, Tally> tallies;
};

std::vector<std::string> tiny(std::vector<std::string> more) {
  std::vector<std::string> overrides{
      "model.vocab_size=24",          "model.hidden_size=8",
      "model.intermediate_size=16",   "model.num_hidden_layers=2",
      "model.num_attention_heads=2",  "model.num_key_value_heads=1",
      "training.sequence_length=4",   "training.micro_batch_size=2",
      "training.batch_size=4"};
  overrides.insert(overrides.end(), more.begin(), more.end());
  return overrides;
}

} // namespace

// The modules that place-buffers is tested with: copies, columns, parts of wholes.
TEST_F(DrawnAliasingFaults, HandWrittenModules) {
  int modules = 0;
  const int64_t count = test::drawCount(100);
  for (const char *name : {"place-buffers", "place-buffers-hazards", "place-buffers-columns"})
    modules += fuzzFile(name, count, modules);
  EXPECT_GE(modules, 20);
  report();
}

TEST_F(DrawnAliasingFaults, TiedF32) {
  model.compile("test-tiny.toml", tiny({}));
  fuzz(test::drawCount(40), 1);
  report();
}

TEST_F(DrawnAliasingFaults, UntiedBF16WithBlockRecompute) {
  model.compile("test-mistral.toml", tiny({"training.compute_dtype=bf16",
                                           "memory.recompute=block", "training.batch_size=6",
                                           "training.document_mask=true"}));
  fuzz(test::drawCount(30), 2);
  report();
}

TEST_F(DrawnAliasingFaults, TiedBF16WithFullRecomputeInOneStep) {
  model.compile("test-tiny.toml", tiny({"training.compute_dtype=bf16", "memory.recompute=full",
                                        "training.batch_size=2"}));
  fuzz(test::drawCount(30), 3);
  report();
}

// The commands' scratch memory on a CUDA device: the attention gradient's, the sort's and the
// products'.
TEST_F(DrawnAliasingFaults, ScratchOfCudaCommands) {
  model.target = "cuda";
  fuzzFile("place-buffers-cuda", test::drawCount(100), 100);
  bool found = false;
  model.plan->walk([&](CommandOpInterface command) { found |= bool(command.getScratch()); });
  EXPECT_TRUE(found);
  report();
}
