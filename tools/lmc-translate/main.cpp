// lmc-translate: mlir-translate with lmc's dialects, for tests and for looking around.
//
//   lmc-translate --kern-to-cuda kernels.mlir
//
// prints every kern.kernel of a module as CUDA C++.
#include "compiler/driver/Registration.h"
#include "compiler/targets/cuda/CudaKernel.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"

using namespace mlir;

static LogicalResult printKernels(ModuleOp module, llvm::raw_ostream &os) {
  for (auto kernel : module.getOps<lmc::kern::KernelOp>()) {
    std::string reason;
    FailureOr<lmc::codegen::CudaKernel> cuda = lmc::codegen::printCudaKernel(kernel, &reason);
    if (failed(cuda))
      return kernel.emitOpError("cannot be printed as CUDA C++: ") << reason;
    os << cuda->source << "\n";
  }
  return success();
}

int main(int argc, char **argv) {
  TranslateFromMLIRRegistration registration(
      "kern-to-cuda", "every kern.kernel as CUDA C++",
      [](ModuleOp module, llvm::raw_ostream &os) { return printKernels(module, os); },
      [](DialectRegistry &registry) { lmc::registerDialects(registry); });
  return failed(mlirTranslateMain(argc, argv, "lmc translation driver"));
}
