#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Gemm &op) {
  auto gemm = bindGemm(op, at.memory, at.gemms);
  LMC_TRY(gemm);
  return BoundCommand([gemm = *gemm] { gemm.run(); });
}

} // namespace lmc::cpu
