#include "compiler/targets/cuda/templates/CommandTemplates.h"

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

RankedTensorType bytesType(Operation *op, int64_t bytes) {
  return RankedTensorType::get(bytes, IntegerType::get(op->getContext(), 8));
}

} // namespace lmc::codegen
