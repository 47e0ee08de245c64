#include "compiler/targets/cuda/templates/CommandTemplates.h"

#include "llvm/Support/Format.h"

using namespace mlir;

namespace lmc::codegen {

TemplateLaunch onOperands(CudaKernel kernel, CommandOpInterface op) {
  TemplateLaunch launch{std::move(kernel), {}, {}};
  for (const CommandOperand &operand : op.getCommandOperands())
    if (operand.role == CommandRole::Read)
      launch.inputs.push_back(operand.value);
    else if (operand.role != CommandRole::Scratch)
      launch.results.push_back(operand.value);
  return launch;
}

std::string real(double value) {
  llvm::SmallString<32> text;
  llvm::raw_svector_ostream(text) << llvm::format("%.9g", double(float(value)));
  if (!text.str().contains_insensitive('.') && !text.str().contains('e'))
    text += ".0";
  return (text + "f").str();
}

RankedTensorType bytesType(Operation *op, int64_t bytes) {
  return RankedTensorType::get(bytes, IntegerType::get(op->getContext(), 8));
}

} // namespace lmc::codegen
