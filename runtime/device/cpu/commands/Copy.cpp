#include "runtime/device/cpu/Resolver.h"

namespace lmc::cpu {

template <>
Result<BoundCommand> resolve(Resolver &at, const plan::Command &, const plan::Copy &op) {
  return BoundCommand(
      [copy = bindCopy(op, at.memory), threads = at.threads] { copy.run(threads); });
}

} // namespace lmc::cpu
