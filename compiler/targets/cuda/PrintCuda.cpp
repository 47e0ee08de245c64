// Prints a kern.kernel as CUDA C++. CudaEmitter.h explains what the printers of all heroes share.
// The loops of each hero are in PrintCudaElements.cpp, PrintCudaRows.cpp and PrintCudaColumns.cpp.
#include "compiler/targets/cuda/CudaEmitter.h"

#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace lmc::codegen {

std::optional<LongRows> longRowsOf(StringRef name) {
  return llvm::StringSwitch<std::optional<LongRows>>(name)
      .Case("shared", LongRows::Shared)
      .Case("again", LongRows::Again)
      .Case("alone", LongRows::Alone)
      .Default(std::nullopt);
}

llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel, const CudaPrinting &how) {
  llvm::Expected<RegionInfo> info = analyzeKernel(kernel);
  if (!info)
    return info.takeError();
  switch (info->hero) {
  case kern::Hero::Elementwise:
  case kern::Hero::Gather:
    return printCudaElements(kernel, *info);
  case kern::Hero::RowReduction:
    return printCudaRows(kernel, *info, how);
  case kern::Hero::ColumnReduction:
    return printCudaColumns(kernel, *info);
  }
  llvm_unreachable("a hero");
}

} // namespace lmc::codegen
