#include "test/simt/kernels/TableCommand.h"

#include "compiler/driver/Registration.h"
#include "compiler/emit/Commands.h"
#include "compiler/emit/Variables.h"
#include "dialects/interfaces/TensorBytes.h"
#include "passes/buffers/Passes.h"
#include "test/compiler/extract/HostProgram.h"
#include "test/simt/kernels/KernelArgument.h"
#include "test/simt/kernels/KernelCheck.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <fmt/format.h>

using namespace mlir;
using lmc::plan::DType;

namespace lmc::simt {

const std::vector<TableCommand> &commandTable() {
  static const std::vector<TableCommand> table = {
#include "test/simt/kernels/Commands.inc"
  };
  return table;
}

std::vector<std::string> TableCommand::switches() const {
  std::vector<std::string> names;
  bool sums = false;
  for (const TableAttribute &attribute : attributes)
    if (attribute.type == "flag")
      names.push_back(attribute.name);
  for (const TableOperand &operand : operands) {
    if (operand.isOptional)
      names.push_back(operand.name);
    sums |= operand.role == "sum";
  }
  if (sums)
    names.push_back("accumulate");
  if (!absent.empty())
    names.push_back(absent);
  return names;
}

//===-- Cases -------------------------------------------------------------------------------===//

std::vector<TableOperand> CommandCase::operands() const {
  std::vector<TableOperand> present;
  for (const TableOperand &operand : command->operands)
    if (!operand.isOptional || on.count(operand.name))
      present.push_back(operand);
  return present;
}

Shape CommandCase::shapeOf(const TableOperand &operand) const {
  Shape shape = operand.shape(numbers);
  if (!operand.isFlat)
    return shape;
  int64_t columns = 8;
  while (shape[0] % columns)
    --columns;
  return {shape[0] / columns, columns};
}

DType CommandCase::dtypeOf(const TableOperand &operand) const {
  if (operand.dtype == "T")
    return type;
  if (operand.dtype == "I32")
    return DType::I32;
  if (operand.dtype == "H")
    return type == DType::BF16 ? DType::BF16 : DType::F32;
  if (operand.dtype == "Q")
    return type == DType::F32 ? DType::F8E5M2 : DType::F8E4M3;
  return operand.dtype != "F32" && type == DType::F64 ? DType::F64 : DType::F32;
}

uint64_t CommandCase::bytesOf(const TableOperand &operand) const {
  uint64_t bytes = byteWidth(dtypeOf(operand));
  for (int64_t extent : shapeOf(operand))
    bytes *= uint64_t(extent);
  return bytes;
}

std::string CommandCase::describe() const {
  std::string text =
      fmt::format("{} {} {} {}", command->name, plan::EnumNameDType(type), arch.name.str(), real);
  for (const auto &[name, value] : numbers)
    text += fmt::format(" {}={}", name, value);
  for (const std::string &name : on)
    text += " +" + name;
  return text;
}

CommandCase drawCase(const TableCommand &command, std::set<std::string> on, DType type,
                     Draw &draw) {
  // What the kernels on a GPU take at most. Other extents are at most 300.
  const std::map<std::string, int64_t> limits = {{"chosen", 32}, {"count", 1023}, {"groups", 4}};
  auto mostOf = [&](const std::string &name) {
    auto found = limits.find(name);
    return found == limits.end() ? 300 : found->second;
  };
  CommandCase made{&command, type, {}, std::move(on), draw.pick({1.0, 0.5, 2.5})};
  made.arch = *codegen::findCudaArch(draw.oneIn(4) ? "sm_80" : "sm_90a");
  made.arch.chip.sms = draw.pick({1, 3, 40, 132}); // the most blocks of kernels that stay on SMs
  bool hasOptional = false;
  for (const TableOperand &operand : command.operands)
    hasOptional |= operand.isOptional && made.on.count(operand.name);
  // Rows of whole vectors of 16 bytes, which other kernels take.
  const bool isWhole = draw.oneIn(2);
  for (const std::string &extent : command.extents) {
    made.numbers[extent] = draw.extent(mostOf(extent));
    if (isWhole && made.numbers[extent] > 4 && !limits.count(extent))
      made.numbers[extent] = (made.numbers[extent] + 7) / 8 * 8;
  }
  for (const TableAttribute &attribute : command.attributes)
    if (attribute.type == "whole" || attribute.type == "uint")
      made.numbers[attribute.name] = attribute.value.empty() ? draw.extent(mostOf(attribute.name))
                                     : hasOptional && draw.oneIn(2)
                                         ? draw.extent(mostOf(attribute.name))
                                         : std::stoll(attribute.value);
  // No operand has more than 2^17 elements.
  for (bool isLarge = true; isLarge;) {
    isLarge = false;
    if (!command.absent.empty())
      made.numbers[command.absent] = 1;
    for (const TableOperand &operand : made.operands())
      isLarge |= made.bytesOf(operand) > byteWidth(made.dtypeOf(operand)) << 17;
    if (isLarge)
      std::max_element(made.numbers.begin(), made.numbers.end(), [](auto &a, auto &b) {
        return a.second < b.second;
      })->second /= 2;
  }
  if (!command.absent.empty()) {
    const int64_t most = command.most(made.numbers);
    made.numbers[command.absent] = made.on.count(command.absent) ? draw.between(1, most) : most;
  }
  return made;
}

//===-- Plans -------------------------------------------------------------------------------===//

static MLIRContext &context() {
  static MLIRContext *made = [] {
    DialectRegistry registry;
    registerDialects(registry);
    auto *context = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    context->loadAllAvailableDialects();
    return context;
  }();
  return *made;
}

// Returns a function of one op: each operand is a variable.
static std::string moduleOf(const CommandCase &given) {
  std::string variables, loads, inputs, optional, accumulated, types, sumTypes, results, made,
      stores;
  auto list = [](std::string &to, const std::string &item) {
    to += (to.empty() ? "" : ", ") + item;
  };
  for (const TableOperand &operand : given.operands()) {
    std::string type = "tensor<";
    for (int64_t extent : given.shapeOf(operand))
      type += fmt::format("{}x", extent);
    const char *const elements[] = {"f32", "bf16", "f64", "i32", "f8E4M3FN", "f8E5M2"};
    const DType dtypes[] = {DType::F32, DType::BF16,   DType::F64,
                            DType::I32, DType::F8E4M3, DType::F8E5M2};
    type += std::string(elements[llvm::find(dtypes, given.dtypeOf(operand)) - dtypes]) + ">";
    const bool isRead = operand.role == "read";
    const bool isAdded = operand.role == "sum" && given.on.count("accumulate");
    variables += fmt::format("lm.variable @{} {} : {} init none\n", operand.name,
                             isRead ? "input" : "gradient", type);
    if (isRead || isAdded)
      loads += fmt::format("  %{0}_in = lm.load @{0} : {1}\n", operand.name, type);
    if (isRead) {
      list(types, type);
      if (operand.isOptional)
        optional += fmt::format(" {0} %{0}_in", operand.name);
      else
        list(inputs, fmt::format("%{}_in", operand.name));
      continue;
    }
    if (isAdded) {
      accumulated += fmt::format(" acc %{}_in", operand.name);
      list(sumTypes, type);
    }
    list(results, "%" + operand.name);
    list(made, type);
    stores += fmt::format("  lm.store %{0}, @{0} : {1}\n", operand.name, type);
  }
  if (!sumTypes.empty())
    list(types, sumTypes);
  std::string attributes;
  for (const TableAttribute &attribute : given.command->attributes) {
    if (attribute.type == "flag" && given.on.count(attribute.name))
      list(attributes, attribute.name);
    if (attribute.type == "real")
      list(attributes, fmt::format("{} = {:f} : f64", attribute.name, given.real));
    if (attribute.type == "whole" || attribute.type == "uint")
      list(attributes,
           fmt::format("{} = {} : i64", attribute.name, given.numbers.at(attribute.name)));
  }
  return fmt::format("{}func.func @f() {{\n{}  {} = kern.{} {}{}{} : ({}) -> ({}) {{{}}}\n{}  "
                     "return\n}}\n",
                     variables, loads, results, given.command->name, inputs, optional, accumulated,
                     types, made, attributes, stores);
}

PlannedCommand::PlannedCommand(const CommandCase &given, const std::string &target) {
  module = parseSourceString<ModuleOp>(moduleOf(given), &context());
  if (!module)
    return;
  PassManager passes(&context());
  AssignBuffersPassOptions assign;
  assign.target = target;
  passes.addPass(createAssignBuffersPass(assign));
  passes.addPass(createPackArenasPass());
  EmitCommandsPassOptions emit;
  emit.keepTensors = false;
  passes.addPass(createEmitCommandsPass(emit));
  if (failed(passes.run(*module)))
    return;
  for (Operation &op : (*module->getOps<plan_ir::FunctionOp>().begin()).getBody().front())
    if (auto variable = dyn_cast<plan_ir::VariableRefOp>(op))
      slices.emplace_back(variable, variable.getVariable().str());
    else if (auto slice = dyn_cast<plan_ir::SliceOp>(op))
      slices.emplace_back(slice, "workspace");
    else
      command = &op;
}

std::map<std::string, uint32_t> PlannedCommand::addTo(test::PlanBuilder &b,
                                                      const codegen::TargetCode &code) const {
  PlanNumbers numbers;
  std::map<std::string, uint32_t> named;
  for (const auto &[slice, name] : slices) {
    auto type = cast<plan_ir::SliceType>(slice.getType()).getContent();
    numbers.slices[slice] = named[name] = b.slice(
        *dtypeOf(command, type.getElementType()),
        std::vector<uint64_t>(type.getShape().begin(), type.getShape().end()), name == "workspace");
  }
  auto emitted = emitCommand(*command, numbers, code);
  if (succeeded(emitted))
    b.plan.functions[0]->commands.push_back(std::move(*emitted));
  return named;
}

llvm::Expected<std::string> programOf(const CommandCase &given) {
  const PlannedCommand planned(given, "cuda");
  if (!planned.command)
    return llvm::createStringError("the command is not placed");
  codegen::TargetCode code;
  codegen::TargetCode::Launch launch{0, {}, 0};
  for (const CommandOperand &operand :
       cast<CommandOpInterface>(planned.command).getCommandOperands())
    if (operand.value && operand.role != CommandRole::Scratch)
      launch.args.push_back(operand.value);
  code.launches[planned.command] = {launch};
  test::CudaPlan b;
  planned.addTo(b, code);
  b.kernel("kernels", "extern \"C\" {\n"
                      "void (*runOnDevice)(void **arguments) = nullptr;\n"
                      "void kernels(void **arguments) { runOnDevice(arguments); }\n"
                      "}\n");
  return b.extract("kernels");
}

//===-- Devices -----------------------------------------------------------------------------===//

Result<std::unique_ptr<CpuCommand>> CpuCommand::open(const CommandCase &given) {
  const PlannedCommand planned(given, "cpu");
  if (!planned.command)
    return Error{"the command is not placed"};
  test::PlanBuilder b;
  auto made = std::make_unique<CpuCommand>();
  made->slices = planned.addTo(b, {});
  auto plan = b.open();
  LMC_TRY(plan);
  made->plan = std::move(*plan);
  auto device = openDevice(*made->plan, {.threads = 3});
  LMC_TRY(device);
  made->device = std::move(*device);
  LMC_TRY(made->device->load(*made->plan));
  auto recorded = made->device->record(0);
  LMC_TRY(recorded);
  made->executable = std::move(*recorded);
  return made;
}

Result<void> CpuCommand::run(Contents &contents) {
  for (auto &[name, bytes] : contents)
    LMC_TRY(device->copyIn(int(slices.at(name)), bytes.data(), bytes.size()));
  LMC_TRY(device->submit(*executable));
  LMC_TRY(device->synchronize());
  for (auto &[name, bytes] : contents)
    LMC_TRY(device->copyOut(int(slices.at(name)), bytes.data(), bytes.size()));
  return {};
}

SimtCommand::SimtCommand(const CommandCase &given)
    : planned(given, "cuda"), command(*given.command) {
  if (!planned.command)
    return;
  FailureOr<codegen::CudaProgram> made = codegen::planCudaProgram(*planned.module, given.arch);
  if (failed(made))
    return;
  program = std::move(*made);
  for (const codegen::CudaProgram::Kernel &kernel : program.kernels)
    texts.push_back(sourceOf(kernel.cuda));
}

size_t SimtCommand::ways() const {
  return isa<plan_ir::ExpertLinearOp>(planned.command)
             ? program.launches.lookup(planned.command).size()
             : 1;
}

Result<void> SimtCommand::run(Contents &contents, size_t way) {
  const auto launches = program.launches.lookup(planned.command);
  if (launches.empty())
    return Error{"the command has no CUDA kernels"};
  std::map<std::string, AlignedBytes> held;
  for (const auto &[slice, name] : planned.slices)
    if (auto found = contents.find(name); found != contents.end()) {
      held.emplace(name, AlignedBytes(found->second.data(), found->second.size()));
    } else {
      std::vector<char> garbage(byteSize(cast<plan_ir::SliceType>(slice.getType()).getContent()));
      fillGarbage(garbage.data(), garbage.size(), 1, 1);
      held.emplace(name, AlignedBytes(garbage.data(), garbage.size()));
    }
  auto nameOf = [&](Value value) {
    return llvm::find_if(planned.slices, [&](auto &slice) { return slice.first == value; })->second;
  };
  moved.resize(launches.size());
  for (size_t i = 0; i < launches.size(); ++i) {
    if (ways() > 1 && i != way)
      continue;
    std::vector<Argument> arguments;
    for (Value value : launches[i].args) {
      AlignedBytes &argument = held.at(nameOf(value));
      const bool isInput = arguments.size() < launches[i].inputs;
      arguments.push_back(
          {argument.lines.data(), argument.size, isInput ? Access::Read : Access::ReadWrite});
    }
    const RunResult result = runTwice(kernels[launches[i].kernel], arguments, i + 1, true);
    if (!result.failure.empty())
      return Error{result.failure};
    uint64_t read = 0, written = 0;
    for (const Traffic &each : result.traffic) {
      read += each.distinctLoaded;
      written += each.distinctStored;
    }
    const codegen::CudaKernel &kernel = program.kernels[launches[i].kernel].cuda;
    if (result.atomics)
      return Error{kernel.name + " uses atomic operations"};
    // What scatter_add moves depends on its ids: ScatterAddTest.cpp counts it.
    if (command.name != "scatter_add" &&
        (read > kernel.bytes.read || written > kernel.bytes.written))
      return userError("{} reads {} bytes, and says {}, and writes {}, and says {}", kernel.name,
                       read, kernel.bytes.read, written, kernel.bytes.written);
    moved[i] = std::max(moved[i],
                        double(read + written) / double(kernel.bytes.read + kernel.bytes.written));
  }
  for (auto &[name, bytes] : contents)
    held.at(name).to(bytes.data());
  return {};
}

} // namespace lmc::simt
