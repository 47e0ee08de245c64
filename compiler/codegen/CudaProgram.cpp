#include "compiler/codegen/CudaProgram.h"

#include "compiler/codegen/CudaCode.h"
#include "compiler/codegen/InitializerTemplates.h"
#include "compiler/codegen/ScatterAddTemplates.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

class Planner {
public:
  explicit Planner(const CudaArch &arch) : arch(arch) {}

  LogicalResult addKernel(kern::KernelOp op);
  void addInitializers(ModuleOp module);
  LogicalResult addCommand(Operation &command);

  CudaProgram program;

private:
  size_t indexOf(CudaKernel kernel, StringRef sourceOp);
  void addScatterAdd(plan_ir::ScatterAddOp scatter);

  const CudaArch &arch;
  llvm::StringMap<std::vector<size_t>> templates; // by source: kernels that differ in their launch
};

} // namespace

LogicalResult Planner::addKernel(kern::KernelOp op) {
  std::string reason;
  FailureOr<CudaKernel> printed = printCudaKernel(op, arch, &reason);
  if (failed(printed))
    return emitError(op.getLoc()) << "kernel '" << op.getSymName()
                                  << "' cannot be generated for " << arch.name << ": " << reason;
  program.kernels.push_back({std::move(*printed), op, "", {}});
  return success();
}

size_t Planner::indexOf(CudaKernel kernel, StringRef sourceOp) {
  std::vector<size_t> &known = templates[kernel.source];
  for (size_t index : known) {
    const CudaKernel &other = program.kernels[index].cuda;
    if (other.grid == kernel.grid && other.threads == kernel.threads &&
        other.sharedBytes == kernel.sharedBytes)
      return index;
  }
  known.push_back(program.kernels.size());
  program.kernels.push_back({std::move(kernel), nullptr, sourceOp.str(), {}});
  return known.back();
}

void Planner::addInitializers(ModuleOp module) {
  for (CudaKernel &kernel : initializerKernels(module)) {
    std::string name = kernel.name;
    program.initializers[name] = indexOf(std::move(kernel), "");
  }
}

static RankedTensorType contentOf(Value slice) {
  return cast<plan_ir::SliceType>(slice.getType()).getContent();
}

static DataType dataTypeOf(RankedTensorType type) {
  Type element = type.getElementType();
  return element.isF64() ? DataType::F64 : element.isBF16() ? DataType::BF16 : DataType::F32;
}

void Planner::addScatterAdd(plan_ir::ScatterAddOp scatter) {
  RankedTensorType x = contentOf(scatter.getX()), d = contentOf(scatter.getD());
  ScatterAddShape shape;
  shape.rows = x.getDimSize(0);
  shape.columns = x.getDimSize(1);
  shape.vocabulary = d.getDimSize(0);
  shape.x = dataTypeOf(x);
  shape.accumulate = scatter.getAccumulate();
  auto slice = [&](ScatterAddOperand operand) -> Value {
    switch (operand) {
    case ScatterAddOperand::Ids:
      return scatter.getIds();
    case ScatterAddOperand::X:
      return scatter.getX();
    case ScatterAddOperand::Workspace:
      return scatter.getWorkspace();
    case ScatterAddOperand::D:
      return scatter.getD();
    }
    llvm_unreachable("an operand");
  };
  for (ScatterAddLaunch &launch : scatterAddKernels(shape)) {
    CudaProgram::Launch made{indexOf(std::move(launch.kernel), "lm.embedding_grad"), {}, launch.inputs};
    for (ScatterAddOperand operand : launch.args)
      made.args.push_back(slice(operand));
    program.launches[scatter].push_back(std::move(made));
  }
}

LogicalResult Planner::addCommand(Operation &command) {
  return llvm::TypeSwitch<Operation *, LogicalResult>(&command)
      .Case([&](plan_ir::ScatterAddOp op) {
        addScatterAdd(op);
        return success();
      })
      .Default(success()); // launches of kernels, and what libraries and the driver do
}

FailureOr<CudaProgram> planCudaProgram(ModuleOp module, const CudaArch &arch) {
  Planner planner(arch);
  for (auto kernel : module.getOps<kern::KernelOp>())
    if (failed(planner.addKernel(kernel)))
      return failure();
  for (auto function : module.getOps<plan_ir::FunctionOp>())
    for (Operation &command : function.getBody().front())
      if (failed(planner.addCommand(command)))
        return failure();
  planner.addInitializers(module);
  return std::move(planner.program);
}

llvm::Error compileProgram(CudaProgram &program, const CudaArch &arch, const KernelCache &cache) {
  std::vector<const CudaKernel *> kernels;
  for (const CudaProgram::Kernel &kernel : program.kernels)
    kernels.push_back(&kernel.cuda);
  llvm::Expected<std::vector<Cubin>> cubins = compileCuda(kernels, arch.name, cache);
  if (!cubins)
    return cubins.takeError();
  for (auto [kernel, cubin] : llvm::zip(program.kernels, *cubins))
    kernel.cubin = std::move(cubin);
  return llvm::Error::success();
}

} // namespace lmc::codegen
