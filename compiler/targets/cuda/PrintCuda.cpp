// Prints a kern.kernel as CUDA C++. CudaEmitter.h explains what the printers of all heroes share.
// The loops of each hero are in PrintCudaElements.cpp, PrintCudaRows.cpp and PrintCudaColumns.cpp.
#include "compiler/targets/cuda/CudaEmitter.h"

using namespace mlir;

namespace lmc::codegen {

llvm::Expected<CudaKernel> printCudaKernel(kern::KernelOp kernel) {
  llvm::Expected<RegionInfo> info = analyzeKernel(kernel);
  if (!info)
    return info.takeError();
  switch (info->hero) {
  case kern::Hero::Elementwise:
  case kern::Hero::Gather:
    return printCudaElements(kernel, *info);
  case kern::Hero::RowReduction:
    return printCudaRows(kernel, *info);
  case kern::Hero::ColumnReduction:
    return printCudaColumns(kernel, *info);
  }
  llvm_unreachable("a hero");
}

} // namespace lmc::codegen
