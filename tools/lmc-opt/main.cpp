// lmc-opt: mlir-opt with lmc's dialects and passes, for tests and to look at IR.
#include "compiler/driver/Registration.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  lmc::registerDialects(registry);
  lmc::registerPasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "lmc optimizer driver\n", registry));
}
