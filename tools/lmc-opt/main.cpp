// lmc-opt: mlir-opt with lmc's dialects and passes, for tests and for looking at IR.
#include "compiler/driver/Registration.h"
#include "ground/support/Release.h"

#include "llvm/Support/CommandLine.h"
#include "llvm/Support/raw_ostream.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  llvm::cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << "lmc-opt " << lmc::kRelease.text << "\n"; });
  mlir::DialectRegistry registry;
  lmc::registerDialects(registry);
  lmc::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "lmc optimizer driver\n", registry));
}
