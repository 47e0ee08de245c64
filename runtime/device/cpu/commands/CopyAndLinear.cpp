#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Copy &op) {
  return BoundCommand(
      [copy = bindCopy(op, at.memory), threads = at.threads] { copy.run(threads); });
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command, const plan::Gemm &op) {
  LMC_LET(gemm, bindGemm(op, command.workspace(), at.memory, at.gemms));
  return BoundCommand([gemm = std::move(*gemm)] { gemm.run(); });
}

template <typename Op> static Result<BoundCommand> resolveExperts(Resolver &at, const Op &op) {
  LMC_LET(command, bindExperts(op, at.memory, at.gemms));
  return BoundCommand([command = std::move(*command)]() mutable { command.run(); });
}
template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::ExpertLinear &op) {
  return resolveExperts(at, op);
}
template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &,
                             const plan::ExpertLinearGrad &op) {
  return resolveExperts(at, op);
}

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &command,
                             const plan::ExpertScaledLinear &op) {
  LMC_LET(product, bindExperts(op, command.workspace(), at.memory, at.gemms));
  return BoundCommand([product = std::move(*product)]() mutable { product.run(); });
}

} // namespace lmc::cpu
