#include "compiler/codegen/CudaProgram.h"

#include "compiler/codegen/CudaCode.h"
#include "dialects/plan/Plan.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lmc::codegen {
namespace {

class Planner {
public:
  explicit Planner(const CudaArch &arch) : arch(arch) {}

  LogicalResult addKernel(kern::KernelOp op);
  LogicalResult addCommand(Operation &command);

  CudaProgram program;

private:
  size_t indexOf(CudaKernel kernel, StringRef sourceOp);

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

LogicalResult Planner::addCommand(Operation &command) { return success(); }

FailureOr<CudaProgram> planCudaProgram(ModuleOp module, const CudaArch &arch) {
  Planner planner(arch);
  for (auto kernel : module.getOps<kern::KernelOp>())
    if (failed(planner.addKernel(kernel)))
      return failure();
  for (auto function : module.getOps<plan_ir::FunctionOp>())
    for (Operation &command : function.getBody().front())
      if (failed(planner.addCommand(command)))
        return failure();
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
