// lmc-translate: mlir-translate with lmc's dialects, for tests and for viewing kernels. Each target
// that prints kernels has an option, such as the one that prints every kern.kernel as CUDA C++:
//
//   lmc-translate --kern-to-cuda kernels.mlir
#include "compiler/driver/Registration.h"
#include "compiler/kernels/Target.h"
#include "ground/support/Release.h"

#include "llvm/Support/CommandLine.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Tools/mlir-translate/MlirTranslateMain.h"
#include "mlir/Tools/mlir-translate/Translation.h"

#include <deque>

using namespace mlir;
using lmc::codegen::Target;

static LogicalResult printKernels(const Target &target, ModuleOp module, llvm::raw_ostream &os) {
  for (auto kernel : module.getOps<lmc::kern::KernelOp>()) {
    llvm::Expected<std::string> source = target.print(kernel);
    if (!source)
      return kernel.emitOpError("cannot be printed as ")
             << target.language() << ": " << llvm::toString(source.takeError());
    os << *source << "\n";
  }
  return success();
}

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << "lmc-translate " << lmc::kRelease.text << "\n"; });
  lmc::registerTargets();
  std::deque<std::string> texts; // must live as long as the options, which refer to them
  for (const Target *target : lmc::codegen::targets()) {
    if (target->language().empty())
      continue;
    const std::string &option = texts.emplace_back("kern-to-" + target->name().str());
    const std::string &what =
        texts.emplace_back("every kern.kernel as " + target->language().str());
    TranslateFromMLIRRegistration registration(
        option, what,
        [target](ModuleOp module, llvm::raw_ostream &os) {
          return printKernels(*target, module, os);
        },
        [](DialectRegistry &registry) { lmc::registerDialects(registry); });
  }
  return failed(mlirTranslateMain(argc, argv, "lmc translation driver"));
}
