#include "compiler/extract/ExtractKernel.h"

#include "compiler/extract/HostReference.h"
#include "compiler/extract/Program.h"
#include "ground/plan/Operands.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;

namespace lmc {

using namespace extract;

//===-- Kernels of a region -----------------------------------------------------------------===//

static const char *hostType(Type type) {
  if (type.isF64())
    return "F64";
  if (type.isBF16())
    return "BF16";
  if (isa<Float8E4M3FNType>(type))
    return "F8E4M3";
  if (isa<Float8E5M2Type>(type))
    return "F8E5M2";
  if (type.isInteger(8))
    return "I8";
  if (type.isInteger(32))
    return "I32";
  return type.isInteger(64) ? "I64" : "F32";
}

static void setTolerance(Array &array, Value result) {
  Type element = cast<RankedTensorType>(result.getType()).getElementType();
  if (element.isInteger())
    array.absolute = element.isInteger(8) ? 1 : 0; // rounding may give a neighbouring 8-bit code
  else
    array.allowRoundingTo(hostType(precisionOf(result)));
}

static llvm::Expected<Program> programOf(const plan::Kernel &kernel, MLIRContext &context) {
  OwningOpRef<ModuleOp> module =
      parseSourceString<ModuleOp>(kernel.region()->string_view(), &context);
  if (!module || module->getOps<kern::KernelOp>().empty())
    return fail("kernel '{0}': its region in the plan cannot be read", kernel.name()->str());
  kern::KernelOp op = *module->getOps<kern::KernelOp>().begin();
  Block &body = op.getBody().front();

  Program program;
  Launch launch{&kernel, {}};
  auto add = [&](Value tensor, const llvm::Twine &name) -> Array & {
    auto type = cast<RankedTensorType>(tensor.getType());
    size_t number = program.arrays.size();
    Array array{name.str(), hostType(type.getElementType()), type.getShape().vec()};
    if (op.getArgRows() && op.getArgPitches()) {
      array.rows = std::max<int64_t>(1, (*op.getArgRows())[number]);
      array.pitch = (*op.getArgPitches())[number];
    }
    launch.args.push_back(number);
    return program.arrays.emplace_back(std::move(array));
  };
  for (auto [i, argument] : llvm::enumerate(body.getArguments())) {
    Array &array = add(argument, "in" + llvm::Twine(i));
    const bool isCode = StringRef(array.type) == "I8"; // signed codes do not use -128
    array.least = isCode ? -127 : 0;
    array.bound = isCode ? 128 : integerBound(op);
    array.isPositive = isPositive(argument);
  }
  for (auto [i, value] : llvm::enumerate(body.getTerminator()->getOperands())) {
    Array &array = add(value, "out" + llvm::Twine(i));
    array.isInput = false;
    setTolerance(array, value);
  }
  program.launches.push_back(std::move(launch));

  llvm::Expected<std::string> reference = hostReference(op);
  if (!reference)
    return reference.takeError();
  program.reference = std::move(*reference);
  program.main = "region";
  program.bytes = double(kernel.read_bytes() + kernel.written_bytes());
  program.flops = double(kernel.flops());
  return program;
}

//===-- Any kernel --------------------------------------------------------------------------===//

// Returns the program for the first command that launches the kernel. If no command does, the
// program is for the variable whose initial values the kernel writes.
static llvm::Expected<Program> templateOf(const plan::Plan &plan, uint32_t kernel) {
  for (const plan::Function *function : *plan.functions())
    for (const plan::Command *command : *function->commands())
      for (auto [number, launch] : llvm::enumerate(plan::launchesOf(*command)))
        if (launch->kernel() == kernel)
          return plan::visitBody(
              *command, [&](const auto &body) { return programOf(plan, *command, body, number); });
  if (const plan::Variable *variable = initializedBy(plan, kernel))
    return programOf(plan, *variable);
  return fail("kernel '{0}' has no region, and no command or variable needs it",
              plan.kernels()->Get(kernel)->name()->str());
}

llvm::Expected<std::string> extractKernel(const plan::Plan &plan, StringRef name,
                                          ArrayRef<cost::KernelCost> costs, MLIRContext &context) {
  for (uint32_t i = 0; i < plan.kernels()->size(); ++i) {
    const plan::Kernel &kernel = *plan.kernels()->Get(i);
    if (name != kernel.name()->c_str())
      continue;
    if (!kernel.grid() || !kernel.source())
      return fail("kernel '{0}' has no CUDA code in this plan, which is for {1}", name,
                  plan.target()->str());
    llvm::Expected<Program> program = kernel.region() && kernel.region()->size() > 0
                                          ? programOf(kernel, context)
                                          : templateOf(plan, i);
    if (!program)
      return program.takeError();
    return program->print(plan, name, costs);
  }
  return fail("the plan has no kernel '{0}'; --kernels lists them", name);
}

} // namespace lmc
